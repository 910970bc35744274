"""Writes the small files of this folder with Hugging Face's libraries, for tests/correct/checkpoint_*.

Run it with transformers, peft, safetensors and torch: python make.py [folder]. The tests do not run it.
"""

import collections
import pathlib
import shutil
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, TrainerState

HERE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
HERE = HERE if HERE.is_dir() else HERE.parent


def fill(tensor, start):
    """Returns numbers that every dtype represents exactly, in the shape of `tensor`."""
    count = torch.arange(start, start + tensor.numel()) % 97
    return count.reshape(tensor.shape).to(tensor.dtype)


def mixed():
    dtypes = [torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64,
              torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
    tensors = {f"{'za'[i % 2]}.{d}": fill(torch.zeros((2, 3), dtype=d), i) for i, d in enumerate(dtypes)}
    tensors['name "with" \\ \t \x01 / \x7f \u00e9\u4e2d\U0001f600'] = fill(torch.zeros((5,), dtype=torch.bfloat16), 3)
    tensors["scalar"] = torch.tensor(7.0)
    tensors["empty"] = torch.zeros((0, 3))
    tensors["b"] = fill(torch.zeros((2, 3, 4)), 1)
    save_file(tensors, HERE / "mixed.safetensors", metadata={"format": "pt"})


def views():
    """Writes the same tensors twice: as views in a PyTorch checkpoint, and dense."""
    matrix = fill(torch.zeros((4, 6), dtype=torch.bfloat16), 5)
    storage = fill(torch.zeros((40,)), 2)
    state = collections.OrderedDict(
        matrix=matrix, tied=matrix, transposed=matrix.t(), rows=matrix[1:3], columns=matrix[:, 2:4],
        every_other=storage[3:30:2], cut=storage[10:22].view(3, 4), scalar=storage[7], empty=storage[:0],
        half=fill(torch.zeros((3, 2), dtype=torch.float16), 1), flags=torch.tensor([True, False, True]),
        parameter=torch.nn.Parameter(fill(torch.zeros((2, 2)), 9)),
        **{str(d).removeprefix("torch."): fill(torch.zeros((5,), dtype=d), 3)
           for d in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float64)},
    )
    state._metadata = collections.OrderedDict(version=1)  # as in a state dict
    torch.save(state, HERE / "views.bin")
    save_file({key: value.detach().clone().contiguous() for key, value in state.items()}, HERE / "views.safetensors")


def llama():
    config = LlamaConfig(hidden_size=8, intermediate_size=12, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, vocab_size=16, tie_word_embeddings=True)
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def sharded():
    shutil.rmtree(HERE / "sharded", ignore_errors=True)
    model = llama()
    for i, parameter in enumerate(model.parameters()):
        parameter.data = fill(parameter.data, i)
    model.save_pretrained(HERE / "sharded", max_shard_size=700)


def adapters():
    for name, options in {
        "adapter": {"r": 4, "lora_alpha": 8, "lora_dropout": 0.05, "target_modules": ["q_proj", "down_proj"],
                    "rank_pattern": {"layers.1.self_attn.q_proj": 2}, "alpha_pattern": {"down_proj": 12}},
        "adapter_dora": {"r": 2, "lora_alpha": 3.5, "target_modules": ["v_proj"], "use_dora": True, "use_rslora": True,
                         "modules_to_save": ["lm_head"]},
    }.items():
        model = get_peft_model(llama().float(), LoraConfig(task_type="CAUSAL_LM", **options))
        for i, (key, parameter) in enumerate(model.named_parameters()):
            if parameter.requires_grad:
                parameter.data = fill(parameter.data, i)
        model.peft_config["default"].base_model_name_or_path = "some/base"
        shutil.rmtree(HERE / name, ignore_errors=True)
        model.save_pretrained(HERE / name)
        (HERE / name / "README.md").unlink(missing_ok=True)


def trainer_state():
    state = TrainerState(global_step=20, max_steps=40, epoch=0.5, num_train_epochs=1, logging_steps=10, eval_steps=20,
                         save_steps=20, train_batch_size=2, num_input_tokens_seen=1234, total_flos=5.5e9,
                         best_metric=1.25, best_global_step=20, best_model_checkpoint="out/checkpoint-20")
    state.log_history = [
        {"loss": 2.5, "grad_norm": 0.125, "learning_rate": 0.0001, "epoch": 0.25, "step": 10},
        {"loss": 1.5, "grad_norm": 0.0625, "learning_rate": 5e-05, "epoch": 0.5, "step": 20},
        {"eval_loss": 1.25, "eval_runtime": 0.5, "epoch": 0.5, "step": 20},
    ]
    state.save_to_json(str(HERE / "trainer_state.json"))


mixed()
views()
sharded()
adapters()
trainer_state()

for file in HERE.rglob("*"):
    if file.is_file():
        file.chmod(0o644)
