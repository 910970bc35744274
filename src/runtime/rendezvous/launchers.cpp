#include "runtime/rendezvous/launchers.h"

#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace fettle {
namespace {

// One table row per launcher. The columns after `engine` are names of environment variables; "" means that the launcher
// has no such variable.
struct Launcher {
  const char* name;
  Engine engine;
  const char* mark;  // set in every process that the launcher starts, and in no other
  const char *rank, *size, *local_rank, *local_size;
  const char* address;  // a host, or a list of hosts, whose first entry is used
  const char* port;     // a port that the launcher uses itself; the store uses this port + 2
  const char* job;      // a name or number of the run; without it, two runs may have the same ProcessPlace::job
  // The number of processes that torchrun would start in each pod. `size` counts these processes even if the pods do
  // not use torchrun. In that case, `local_rank` is not set, each pod has one process, and read_size() corrects `size`.
  const char* per_pod = "";
};

// In the rows with kPmix, rank and size come from the variables at first. If the size is above 1 and a PMIx library and
// a PMIx server exist, the server's numbers replace them.
constexpr Launcher kLaunchers[] = {
    {"fettle launch", Engine::kRedis, "FETTLE_RANK", "FETTLE_RANK", "FETTLE_SIZE", "FETTLE_LOCAL_RANK",
     "FETTLE_LOCAL_SIZE", "FETTLE_ADDRESS", "", "FETTLE_JOB"},
    {"torchrun or PyTorchJob", Engine::kRedis, "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PET_NPROC_PER_NODE"},
    {"mpirun", Engine::kPmix, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "", "PMIX_NAMESPACE"},
    // Must be above srun: inside a SLURM job, this mpiexec starts its helpers with srun and passes srun's variables on.
    {"mpiexec of MPICH, Intel MPI or MVAPICH", Engine::kRedis, "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE",
     "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MASTER_ADDR", "MASTER_PORT", ""},
    {"srun", Engine::kPmix, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "",
     "SLURM_STEP_NODELIST", "", "SLURM_JOB_ID"},
    // An mpiexec without MPI_LOCALRANKID. Must be below srun, which also sets PMI_RANK.
    {"mpiexec of MPICH, Intel MPI or MVAPICH", Engine::kRedis, "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS", "MASTER_ADDR", "MASTER_PORT", ""},
    {"Kubeflow Trainer (PyTorch)", Engine::kRedis, "PET_NNODES", "PET_NODE_RANK", "PET_NNODES", "", "",
     "PET_MASTER_ADDR", "PET_MASTER_PORT", ""},
    {"Kubeflow Trainer (JAX)", Engine::kRedis, "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "", "",
     "JAX_COORDINATOR_ADDRESS", "", ""},
    {"SkyPilot", Engine::kRedis, "SKYPILOT_NODE_RANK", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES", "", "",
     "SKYPILOT_NODE_IPS", "", "SKYPILOT_TASK_ID"},
    {"dstack", Engine::kRedis, "DSTACK_NODE_RANK", "DSTACK_NODE_RANK", "DSTACK_NODES_NUM", "", "",
     "DSTACK_MASTER_NODE_IP", "", "DSTACK_RUN_NAME"},
    {"JobSet", Engine::kRedis, "JOBSET_NAME", "JOB_COMPLETION_INDEX", "FETTLE_SIZE", "", "", "FETTLE_ADDRESS", "",
     "JOBSET_NAME"},
    // Kubernetes also sets JOB_COMPLETION_INDEX in a Job whose pods train alone. Only FETTLE_SIZE says that the pods
    // train together.
    {"JobSet", Engine::kRedis, "FETTLE_SIZE", "JOB_COMPLETION_INDEX", "FETTLE_SIZE", "", "", "FETTLE_ADDRESS", "", ""},
};

constexpr int kPort = 29631, kMostProcesses = 100'000;

int read_number(const Launcher& launcher, const ReadVariable& variable, const char* name, int least, int most) {
  const std::string text = variable(name);
  int value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw UserError(
        "{} started this process ({} is set), but {} is '{}', wanted a number from {} to {}; set it, or unset {} to "
        "train with this process alone",
        launcher.name, launcher.mark, name, text, least, most, launcher.mark);
  return value;
}

// Returns the number of processes. PyTorchJob's WORLD_SIZE counts nprocPerNode processes for each pod, because torchrun
// would start that many. Without torchrun, each pod has only one process, which uses all devices of the pod. In this
// case, the function divides WORLD_SIZE by nprocPerNode.
int read_size(const Launcher& launcher, const ReadVariable& variable) {
  const int size = read_number(launcher, variable, launcher.size, 1, kMostProcesses);
  const std::string text = *launcher.per_pod == '\0' ? "" : variable(launcher.per_pod);
  if (!digits_value(text) || !variable(launcher.local_rank).empty()) return size;
  const int per_pod = read_number(launcher, variable, launcher.per_pod, 1, kMostProcesses);
  if (size % per_pod != 0)
    throw UserError(
        "{} is {}, which is not a multiple of {} ({}); start one process in each pod and leave out nprocPerNode, or "
        "start the processes with torchrun",
        launcher.size, size, launcher.per_pod, per_pod);
  return size / per_pod;
}

// Removes a port: "head:1234" gives "head". An IPv6 address keeps its colons.
std::string without_port(const std::string& address) {
  const size_t colon = address.find(':');
  return colon == std::string::npos || address.find(':', colon + 1) != std::string::npos ? address
                                                                                         : address.substr(0, colon);
}

std::string find_address(const Launcher& launcher, const ReadVariable& variable, const ProcessPlace& place) {
  // All processes are on this host. Process 0 then serves only this address, whatever address the launcher gives.
  if (place.local_size == place.size) return "127.0.0.1";
  const std::string list = *launcher.address == '\0' ? "" : variable(launcher.address);
  const std::string first = without_port(first_host(list.substr(0, list.find_first_of(" \n\t"))));
  if (!first.empty()) return first;
  if (launcher.engine == Engine::kPmix) return "";
  throw UserError(
      "{} started process {} of {}, but {} is not set; set it to the name or address of the host that runs process 0",
      launcher.name, place.rank, place.size, launcher.address);
}

ProcessPlace read_place(const Launcher& launcher, const ReadVariable& variable) {
  ProcessPlace place{.launcher = launcher.name, .variable = launcher.mark, .engine = launcher.engine};
  auto has = [&](const char* name) { return *name != '\0' && !variable(name).empty(); };
  place.size = read_size(launcher, variable);
  place.rank = read_number(launcher, variable, launcher.rank, 0, place.size - 1);
  place.local_known = has(launcher.local_size) && has(launcher.local_rank);
  if (place.local_known) {
    place.local_size = read_number(launcher, variable, launcher.local_size, 1, place.size);
    place.local_rank = read_number(launcher, variable, launcher.local_rank, 0, place.local_size - 1);
  }
  if (place.size == 1) return place;
  place.address = find_address(launcher, variable, place);
  place.port = kPort;
  // Launchers give different ports to different runs on the same hosts. The store's port is made from the launcher's
  // port, so that it also differs between these runs.
  if (has(launcher.port))
    place.port = (read_number(launcher, variable, launcher.port, 1, 65535) + 2 - 1024) % 64512 + 1024;
  if (!variable("FETTLE_STORE_PORT").empty())
    place.port = read_number(launcher, variable, "FETTLE_STORE_PORT", 1, 65535);
  // TORCHELASTIC_RESTART_COUNT must not be part of it: each agent of torchrun counts its own restarts.
  place.job = fmt::format("{} {} {} {}", launcher.name, place.size, place.port,
                          *launcher.job == '\0' ? "" : variable(launcher.job));
  return place;
}

// Warns that a process that trains alone leaves nodes of its SLURM job idle. A batch script starts a program on the
// first node only.
void warn_of_idle_nodes(const ReadVariable& variable) {
  const std::optional<int64_t> nodes = digits_value(variable("SLURM_JOB_NUM_NODES"));
  if (nodes && *nodes > 1)
    warn(
        "SLURM_JOB_NUM_NODES is {}, but this process trains alone on 1 of {} nodes; to train on all of them, start it "
        "with srun, one task on each node (docs/hosts.md)",
        *nodes, *nodes);
}

}  // namespace

std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), end = list.find_first_of(",");
  if (bracket == std::string::npos || end < bracket) return list.substr(0, end);
  const size_t stop = list.find_first_of(",-]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, stop - bracket - 1);
}

std::optional<ProcessPlace> find_place(const ReadVariable& variable) {
  for (const Launcher& launcher : kLaunchers) {
    if (variable(launcher.mark).empty()) continue;
    // A launcher may set the variable `mark` even if the launcher starts only one process. For example, a JobSet with
    // one pod sets it. Such a process runs alone.
    ProcessPlace place = read_place(launcher, variable);
    if (place.size == 1) {
      warn_of_idle_nodes(variable);
      return std::nullopt;
    }
    return place;
  }
  if (!variable("JOB_COMPLETION_INDEX").empty())
    warn(
        "JOB_COMPLETION_INDEX is set but FETTLE_SIZE is not, so this pod trains alone; to train with all pods of a "
        "JobSet, set FETTLE_SIZE to their number and FETTLE_ADDRESS to the name of the first one (docs/hosts.md)");
  warn_of_idle_nodes(variable);
  return std::nullopt;
}

}  // namespace fettle
