"""Records how many steps Hugging Face's Trainer runs. Epochs may be fractions, and intervals shares of all steps.

usage: run_lengths.py        (writes run_lengths.json: the recipe's keys, the rows, and the Trainer's numbers of steps)
"""

import tempfile

import torch
import transformers

import families

# rows, rows per micro-batch, micro-batches per step, epochs, max_steps, warmup_steps, save_steps
RUNS = [
    (80, 2, 2, 3, -1, 0, 10),
    (81, 2, 2, 3, -1, 0.1, 10),
    (83, 2, 4, 2.5, -1, 0.05, 0.1),
    (83, 2, 4, 0.1, -1, 0.5, 0.34),
    (5, 4, 4, 7, -1, 0.3, 0.5),
    (1000, 8, 1, 1.001, -1, 0.001, 0.999),
    (1000, 7, 3, 1, -1, 0.03, 0.02),
    (1000, 7, 3, 3, 17, 0.1, 0.1),
    (10, 1, 1, 3, 100, 7, 3),
    (10, 1, 1, 3, -1, 40, 100),
    (99, 3, 11, 0.3333, -1, 1, 2),
    (640, 2, 2, 0.7, -1, 0.07, 0.007),
]


def record(rows, micro, accumulation, epochs, max_steps, warmup, save):
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, use_cpu=True, report_to=[], per_device_train_batch_size=micro,
            gradient_accumulation_steps=accumulation, num_train_epochs=epochs, max_steps=max_steps,
            warmup_steps=warmup, save_steps=save,
        )  # fmt: skip
        run = transformers.Trainer(torch.nn.Linear(1, 1), arguments, train_dataset=list(range(rows)))
        values = run.set_initial_training_values(arguments, run.get_train_dataloader())
        state = transformers.TrainerState(max_steps=values[-1])
        state.compute_steps(arguments, values[-1])
    keys = dict(per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation, num_train_epochs=epochs)
    keys |= dict(max_steps=max_steps, warmup_steps=warmup, save_steps=save)
    steps = dict(epoch=values[1], total=values[-1], warmup=arguments.get_warmup_steps(values[-1]), save=state.save_steps)
    return dict(rows=rows, recipe=keys, steps=steps)


if __name__ == "__main__":
    families.write_json(families.HERE / "run_lengths.json", [record(*run) for run in RUNS])
