"""Runs the programs that Fettle printed on jaxlib's CPU devices. tests/reference/gloo.sh first starts one process,
which compares its results with those of Fettle's own runtime, and keeps them. Then it starts several processes. They
communicate through gloo, and compare their results with those of the one process.

usage: gloo.py FOLDER DEVICES PROCESSES RANK PORT      FOLDER: what SEVERAL_RECORD has written (tests/several)
"""
import os
import pathlib
import re
import sys

folder, devices, processes, rank, port = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:])
os.environ["XLA_FLAGS"] += f" --xla_force_host_platform_device_count={devices // processes}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax._src.lib import xla_client  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

DTYPES = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "i8": np.int8, "ui8": np.uint8,
          "i32": np.int32, "i64": np.int64, "ui32": np.uint32, "ui64": np.uint64, "i1": np.bool_}
CLOSE = 1e-6  # the bound for differences, as a share of the largest value of an array
WANTED = "jax" if processes > 1 else "out"


def arguments_of(text):
    """Returns (dtype, global shape, NamedSharding) for each argument of @main."""
    axes = re.findall(r'"(\w+)"=(\d+)', re.search(r"sdy\.mesh @mesh = <\[(.*?)\]", text).group(1))
    mesh = Mesh(np.array(jax.devices()).reshape([int(size) for _, size in axes]), [name for name, _ in axes])
    start = text.index("(", text.index("@main")) + 1
    signature = text[start : text.index(") -> ", start)]
    found = []
    for argument in re.split(r",\s*(?=%\w+: tensor)", signature):
        *shape, dtype = re.search(r"tensor<([^>]*)>", argument).group(1).split("x")
        sharding = re.search(r"#sdy\.sharding<@mesh, \[(.*?)\](?:,|>)", argument)
        dims = re.findall(r"\{([^}]*)\}", sharding.group(1)) if sharding else []
        spec = PartitionSpec(*[tuple(re.findall(r'"(\w+)"', dim)) or None for dim in dims])
        found.append((DTYPES[dtype], tuple(map(int, shape)), NamedSharding(mesh, spec)))
    return found


def run(client, name):
    text = (folder / f"{name}.mlir").read_text()
    if "@mesh" not in text:
        return 0
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = 1, devices
    build = options.executable_build_options
    build.num_replicas, build.num_partitions = 1, devices
    build.use_spmd_partitioning = build.use_shardy_partitioner = True
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([[one.id for one in jax.devices()]]))
    program = client.compile_and_load(text.encode(), xla_client.DeviceList(tuple(jax.devices())), options)
    inputs = []
    for number, (dtype, shape, sharding) in enumerate(arguments_of(text)):
        local = sharding.shard_shape(shape)
        parts = [jax.device_put(np.frombuffer((folder / f"{name}-in-{number}-{at}").read_bytes(), dtype).reshape(local),
                                one)
                 for at, one in enumerate(jax.devices()) if one.process_index == rank]
        inputs.append(jax.make_array_from_single_device_arrays(shape, sharding, parts))
    results = program.execute_sharded(inputs).disassemble_into_single_device_arrays()
    worst = 0
    for number, parts in enumerate(results):
        own = [at for at, one in enumerate(jax.devices()) if one.process_index == rank]
        for at, part in zip(own, parts, strict=True):
            found = np.asarray(part)
            wanted = np.frombuffer((folder / f"{name}-{WANTED}-{number}-{at}").read_bytes(),
                                   found.dtype).reshape(found.shape)
            if processes == 1:
                (folder / f"{name}-jax-{number}-{at}").write_bytes(found.tobytes())
            if np.issubdtype(found.dtype, np.integer) or found.dtype == np.bool_:
                if not np.array_equal(found, wanted):
                    sys.exit(f"program {name}, result {number}, device {at}: integers differ")
                continue
            found, wanted = found.astype(np.float64), wanted.astype(np.float64)
            if not np.isfinite(found).all() and not np.array_equal(found, wanted, equal_nan=True):
                sys.exit(f"program {name}, result {number}, device {at}: not finite")
            scale = np.abs(wanted).max(initial=0)
            off = np.abs(found - wanted).max(initial=0) / scale if scale > 0 else np.abs(found).max(initial=0)
            worst = max(worst, off)
            if off > CLOSE:
                sys.exit(f"program {name}, result {number}, device {at}: {off:.2e} of the largest value off")
    print(f"process {rank}: program {name}, {len(inputs)} arguments, {len(results)} results, {text.count(chr(10))} lines; "
          f"at most {worst:.1e} off", flush=True)
    return 1


def main():
    if processes > 1:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", processes, rank, heartbeat_timeout_seconds=60)
    client = jax.local_devices()[0].client
    assert len(jax.devices()) == devices and len(jax.local_devices()) == devices // processes
    names = sorted((int(path.stem) for path in folder.glob("*.mlir")))
    if sum(run(client, name) for name in names) == 0:
        sys.exit("no program was recorded")
    if processes > 1:
        jax.distributed.shutdown()  # if process 0 ended first, the others would end with an error


main()
