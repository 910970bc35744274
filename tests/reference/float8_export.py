"""Tests that Transformers with compressed-tensors loads what `fettle export export_quantization=...` wrote.

usage: float8_export.py PROGRAM

For each scheme and two families, each coded weight in Transformers must equal its code times its factor, and must be
that of an export in 16 bits up to the rounding of the codes. Exit code 1: a weight differs.
"""

import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

MODELS = pathlib.Path(__file__).parent / "models"
LARGEST_ROUNDING = 2.0**-4  # half of the last digit of e4m3, as a share of a normal value


def export(program, model, folder, **keys):
    words = [f"{key}={value}" for key, value in keys.items()]
    adapter = f"adapter_name_or_path={model / 'adapter_final'}"
    command = [program, "export", f"model_name_or_path={model}", adapter, f"export_dir={folder}", "plugin=cpu"]
    subprocess.run(command + words, check=True, capture_output=True, text=True)


def stated(files, name, scheme):
    """Returns the values that the file states for a coded weight, in float32."""
    factors = files[name + "_scale"].float()
    if scheme == "w4a16":
        words = files[name + "_packed"]
        codes = torch.stack([(words >> (4 * i)) & 15 for i in range(8)], -1).flatten(1) - 8
        return codes.float() * factors.repeat_interleave(codes.shape[1] // factors.shape[1], 1)
    codes = files[name]
    if scheme == "fp8_block":
        factors = factors.repeat_interleave(128, 0)[: codes.shape[0]].repeat_interleave(128, 1)[:, : codes.shape[1]]
    return codes.float() * factors


def compare(program, family, scheme, folder):
    """Returns the number of coded weights and the two largest differences (see the top of this file)."""
    export(program, MODELS / family, folder / "plain", export_dtype="bfloat16")
    export(program, MODELS / family, folder / "coded", export_dtype="bfloat16", export_quantization=scheme)
    files = safetensors.torch.load_file(folder / "coded/model.safetensors")
    plain = safetensors.torch.load_file(folder / "plain/model.safetensors")
    how = transformers.CompressedTensorsConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder / "coded", dtype=torch.bfloat16, quantization_config=how
    )
    count, from_file, from_plain = 0, 0.0, 0.0
    for name, weight in model.named_parameters():
        if name not in plain:
            continue  # the head that shares the embedding's weight
        wanted = files[name].float() if name + "_scale" not in files else stated(files, name, scheme)
        if name + "_scale" in files:
            count += 1
            factors = files[name + "_scale"].float()
            # Half the distance between integers, or between e4m3's subnormals. `share` covers e4m3's normal values.
            step = factors.max() * (0.5 if scheme == "w4a16" else 2.0**-10)
            share = 0.0 if scheme == "w4a16" else LARGEST_ROUNDING
            gap = (wanted - plain[name].float()).abs() - plain[name].float().abs() * share - step
            from_plain = max(from_plain, float(gap.max()))
        from_file = max(from_file, float((weight.detach().float() - wanted.to(torch.bfloat16).float()).abs().max()))
    return count, from_file, from_plain


def main():
    failed = False
    for family in ("llama", "qwen3"):
        for scheme in ("fp8_dynamic", "fp8_block", "w4a16"):
            with tempfile.TemporaryDirectory() as folder:
                count, from_file, from_plain = compare(sys.argv[1], family, scheme, pathlib.Path(folder))
            good = count == 14 and from_file == 0 and from_plain <= 1e-3
            failed |= not good
            print(
                f"{family} {scheme}: {count} weights; Transformers and the file differ by {from_file:.1e}, "
                f"beyond the codes' rounding by {max(0, from_plain):.1e}{'' if good else ' FAIL'}"
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
