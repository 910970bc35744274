"""Records bitsandbytes' 4-bit and 8-bit weights, and 20 QLoRA steps by Transformers + PEFT on them.

usage: quantised.py      (writes quantised.safetensors, models/llama/quantised/, quantised.json; bitsandbytes as in
                          requirements-optimizers.txt)

bitsandbytes' quantiser for absmax on the CPU is an approximation. It is replaced, as optimizers.py explains.
"""

import shutil

import bitsandbytes
import peft
import safetensors.torch
import torch
import transformers
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute

import families
import loop
import optimizers
import record

FAMILY = "llama"
FOLDER = families.MODELS / FAMILY
SHAPES = {"wide": (96, 192), "ragged": (5, 50)}  # 288 blocks (two nested blocks); 4 blocks, the last is short
TYPES = ("nf4", "fp4")


def values(name):
    """Returns bfloat16 values whose magnitudes differ between rows. One block is all zeros."""
    shape = SHAPES[name]
    scale = 10 ** (torch.arange(shape[0]) % 4 / 2 - 2).reshape(-1, 1)
    out = (optimizers.numbers(shape, 5) ** 3 * scale).bfloat16()
    out.flatten()[64:128] = 0
    return out


def tensors():
    out = {}
    for name in SHAPES:
        w = values(name)
        out[name] = w
        for kind in TYPES:
            codes, state = bitsandbytes.functional.quantize_4bit(w, quant_type=kind)
            key = f"{name}.{kind}."
            out |= {key + "codes": codes.flatten(), key + "absmax": state.absmax}
            out[key + "values"] = bitsandbytes.functional.dequantize_4bit(codes, state).float()[:8].contiguous()
            codes, state = bitsandbytes.functional.quantize_4bit(w, quant_type=kind, compress_statistics=True)
            out |= {key + "nested_codes": state.absmax, key + "nested_absmax": state.state2.absmax}
            out[key + "offset"] = state.offset.reshape(1)
            state.dtype = torch.float32
            out[key + "nested_values"] = bitsandbytes.functional.dequantize_4bit(codes, state)[:8].contiguous()
        codes, absmax, _ = bitsandbytes.functional.int8_vectorwise_quant(w.half())
        out |= {f"{name}.int8.codes": codes, f"{name}.int8.absmax": absmax}
    out["nested_map"] = bitsandbytes.functional.create_dynamic_map(signed=True)
    return out


def config_of(kind):
    if kind == "int8":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=kind == "nf4",
        bnb_4bit_compute_dtype=torch.float32,
    )  # fmt: skip


def load(folder, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32, device_map="cpu", **options)


def store(kind):
    """Writes the model in bitsandbytes' format, as save_pretrained does, and returns the folder."""
    folder = FOLDER / "quantised" / kind
    shutil.rmtree(folder, ignore_errors=True)
    load(FOLDER, quantization_config=config_of(kind)).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    (folder / "model.safetensors").chmod(0o644)
    return folder


def dequantise(codes, state):
    """Returns the values of the codes. Uses bitsandbytes' general code, because its fast code on the CPU gives other
    values for blocks that cross rows."""
    absmax = state.absmax
    if state.nested:
        absmax = bitsandbytes.functional.dequantize_blockwise(absmax, state.state2) + state.offset
    return _dequantize_4bit_compute(codes.flatten(), absmax, state.code, state.blocksize, state.shape, torch.float32)


def dequantised(folder):
    """Returns the model with plain weights, which have the values of the codes."""
    model = load(folder)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, bitsandbytes.nn.Linear4bit):
                w = dequantise(child.weight.data, child.weight.quant_state)
            elif isinstance(child, bitsandbytes.nn.Linear8bitLt):
                w = child.weight.data.float() * (child.weight.SCB.reshape(-1, 1) / 127)
            else:
                continue
            plain = torch.nn.Linear(w.shape[1], w.shape[0], bias=False)
            plain.weight.data = w.float()
            setattr(module, name, plain)
    return model


def train(folder):
    # On the CPU, bitsandbytes' products use bfloat16 or rounded activations. Here, only the weights are rounded.
    model = peft.PeftModel.from_pretrained(dequantised(folder), FOLDER / "adapter_init", is_trainable=True)
    out = loop.train(model, families.load_rows(), loop.LORA)
    state = peft.get_peft_model_state_dict(model)
    return dict(
        loss=out["loss"], grad_norm=out["grad_norm"],
        final={key: record.summary(key, state[key]) for key in sorted(state)},
    )  # fmt: skip


def main():
    torch.set_num_threads(1)
    safetensors.torch.save_file(tensors(), families.HERE / "quantised.safetensors")
    out = {}
    for kind in ("nf4", "fp4", "int8"):
        folder = store(kind)
        logits = record.logits(dequantised(folder), record.sequence(17))
        out[kind] = dict(ids=record.sequence(17), logits=logits[-1].tolist()) | train(folder)
        print(f"{kind}: {out[kind]['loss'][0]:.4f} -> {out[kind]['loss'][-1]:.4f}")
    families.write_json(families.HERE / "quantised.json", record.digits(out))
    for path in [families.HERE / "quantised.safetensors", *FOLDER.glob("quantised/*/config.json")]:
        path.chmod(0o644)


if __name__ == "__main__":
    main()
