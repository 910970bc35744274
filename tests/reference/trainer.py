"""Runs the real Hugging Face Trainer on the reference models, to check that loop.py gives the same."""

import torch
import transformers

import families
import loop
import record


class InOrder(transformers.Trainer):
    """Uses the rows in file order."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)

    def get_decay_parameter_names(self, model):
        return [name for name in super().get_decay_parameter_names(model) if name in loop.decayed_names(model)]


def train(model, settings, folder):
    keys = dict(settings)
    keys["output_dir"] = str(folder / "trainer")
    arguments = transformers.TrainingArguments(
        **keys, optim="adamw_torch", logging_steps=1, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    run = InOrder(model, arguments, train_dataset=families.load_rows(), data_collator=loop.collate)
    run.remove_callback(transformers.PrinterCallback)
    run.train()
    return [entry["loss"] for entry in run.state.log_history if "loss" in entry]


def losses(family, folder):
    """Returns the losses of LoRA from adapter_init and of full tuning. May write to `folder`."""
    adapter = record.load_adapter(family, families.MODELS / family / "adapter_init", trainable=True)
    base = families.load_model(family)
    return dict(
        lora=train(adapter, loop.settings_of(family, loop.LORA), folder),
        full=train(base, loop.settings_of(family, loop.FULL), folder),
    )
