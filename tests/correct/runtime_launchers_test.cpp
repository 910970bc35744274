#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "runtime/rendezvous/launchers.h"

namespace fettle {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<ProcessPlace> place_with(const Variables& variables) {
  return find_place([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

struct LauncherCase {
  const char* name;
  Variables variables;
  int rank, size, local_rank, local_size;
  const char* address;
};

class Launchers : public testing::TestWithParam<LauncherCase> {};

// The variables of each case are those that the launcher sets in its processes.
TEST_P(Launchers, GiveThePlace) {
  const LauncherCase& one = GetParam();
  const auto place = place_with(one.variables);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, one.rank);
  EXPECT_EQ(place->size, one.size);
  EXPECT_EQ(place->local_rank, one.local_rank);
  EXPECT_EQ(place->local_size, one.local_size);
  EXPECT_EQ(place->address, one.address);
  EXPECT_GT(place->port, 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, Launchers,
    testing::Values(
        LauncherCase{"torchrun",
                     {{"RANK", "9"},
                      {"WORLD_SIZE", "16"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "8"},
                      {"MASTER_ADDR", "gpu01"},
                      {"MASTER_PORT", "29500"}},
                     9,
                     16,
                     1,
                     8,
                     "gpu01"},
        LauncherCase{"pytorchjob_with_nproc_per_node",  // WORLD_SIZE counts eight processes for each of two pods
                     {{"RANK", "1"},
                      {"WORLD_SIZE", "16"},
                      {"PET_NPROC_PER_NODE", "8"},
                      {"PET_NNODES", "2"},
                      {"PET_NODE_RANK", "1"},
                      {"MASTER_ADDR", "tune-master-0"},
                      {"MASTER_PORT", "23456"}},
                     1,
                     2,
                     0,
                     1,
                     "tune-master-0"},
        LauncherCase{"pytorchjob_with_nproc_per_node_and_torchrun",
                     {{"RANK", "9"},
                      {"WORLD_SIZE", "16"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "8"},
                      {"PET_NPROC_PER_NODE", "8"},
                      {"MASTER_ADDR", "tune-master-0"}},
                     9,
                     16,
                     1,
                     8,
                     "tune-master-0"},
        LauncherCase{"pytorchjob_with_automatic_nproc_per_node",
                     {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PET_NPROC_PER_NODE", "auto"}, {"MASTER_ADDR", "a"}},
                     1,
                     2,
                     0,
                     1,
                     "a"},
        LauncherCase{"plain_on_one_host",
                     {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}},
                     1,
                     2,
                     1,
                     2,
                     "127.0.0.1"},
        // The processes are on one host, whose real name is not a loopback address.
        LauncherCase{"torchrun_standalone",
                     {{"RANK", "1"},
                      {"WORLD_SIZE", "8"},
                      {"LOCAL_RANK", "1"},
                      {"LOCAL_WORLD_SIZE", "8"},
                      {"MASTER_ADDR", "gpu01.example.org"},
                      {"MASTER_PORT", "29500"}},
                     1,
                     8,
                     1,
                     8,
                     "127.0.0.1"},
        LauncherCase{"fettle_launch_on_one_host",
                     {{"FETTLE_RANK", "1"},
                      {"FETTLE_SIZE", "2"},
                      {"FETTLE_LOCAL_RANK", "1"},
                      {"FETTLE_LOCAL_SIZE", "2"},
                      {"FETTLE_ADDRESS", "gpu01"}},
                     1,
                     2,
                     1,
                     2,
                     "127.0.0.1"},
        LauncherCase{"pytorchjob",
                     {{"RANK", "2"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}},
                     2,
                     4,
                     0,
                     1,
                     "job-master-0"},
        LauncherCase{"mpirun",
                     {{"OMPI_COMM_WORLD_RANK", "3"},
                      {"OMPI_COMM_WORLD_SIZE", "4"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}},
                     3,
                     4,
                     3,
                     4,
                     "127.0.0.1"},
        LauncherCase{"mpiexec_in_a_slurm_job",  // Hydra has started its helpers, one on each host, with srun
                     {{"SLURM_PROCID", "1"},
                      {"SLURM_STEP_NUM_TASKS", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_NODELIST", "gpu[03-04]"},
                      {"PMI_RANK", "9"},
                      {"PMI_SIZE", "16"},
                      {"MPI_LOCALRANKID", "1"},
                      {"MPI_LOCALNRANKS", "8"},
                      {"MASTER_ADDR", "gpu03"}},
                     9,
                     16,
                     1,
                     8,
                     "gpu03"},
        LauncherCase{"mpiexec_in_an_interactive_step",  // srun --pty bash
                     {{"SLURM_PROCID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "1"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_NODELIST", "gpu03"},
                      {"PMI_RANK", "1"},
                      {"PMI_SIZE", "2"},
                      {"MPI_LOCALRANKID", "1"},
                      {"MPI_LOCALNRANKS", "2"}},
                     1,
                     2,
                     1,
                     2,
                     "127.0.0.1"},
        LauncherCase{"srun",
                     {{"SLURM_PROCID", "1"},
                      {"SLURM_STEP_NUM_TASKS", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_NODELIST", "gpu[03-05,9]"}},
                     1,
                     2,
                     0,
                     1,
                     "gpu03"},
        LauncherCase{"mpiexec_of_mpich",
                     {{"PMI_RANK", "5"},
                      {"PMI_SIZE", "8"},
                      {"MPI_LOCALRANKID", "1"},
                      {"MPI_LOCALNRANKS", "4"},
                      {"MASTER_ADDR", "gpu01"},
                      {"MASTER_PORT", "29500"}},
                     5,
                     8,
                     1,
                     4,
                     "gpu01"},
        LauncherCase{"mpiexec_of_mpich_on_one_host",
                     {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}},
                     1,
                     2,
                     1,
                     2,
                     "127.0.0.1"},
        LauncherCase{"srun_with_pmi",  // srun --mpi=pmi2
                     {{"SLURM_PROCID", "1"},
                      {"SLURM_STEP_NUM_TASKS", "2"},
                      {"SLURM_LOCALID", "0"},
                      {"SLURM_STEP_NODELIST", "gpu03,gpu04"},
                      {"PMI_RANK", "1"},
                      {"PMI_SIZE", "2"}},
                     1,
                     2,
                     0,
                     1,
                     "gpu03"},
        LauncherCase{"trainer_v2",
                     {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "node-0-0.trainer"}},
                     1,
                     2,
                     0,
                     1,
                     "node-0-0.trainer"},
        LauncherCase{"trainer_jax",
                     {{"JAX_NUM_PROCESSES", "2"}, {"JAX_PROCESS_ID", "0"}, {"JAX_COORDINATOR_ADDRESS", "node-0:6666"}},
                     0,
                     2,
                     0,
                     1,
                     "node-0"},
        LauncherCase{
            "skypilot",
            {{"SKYPILOT_NODE_RANK", "1"}, {"SKYPILOT_NUM_NODES", "2"}, {"SKYPILOT_NODE_IPS", "10.0.0.4\n10.0.0.5"}},
            1,
            2,
            0,
            1,
            "10.0.0.4"},
        LauncherCase{"dstack",
                     {{"DSTACK_NODE_RANK", "0"}, {"DSTACK_NODES_NUM", "2"}, {"DSTACK_MASTER_NODE_IP", "10.0.0.4"}},
                     0,
                     2,
                     0,
                     1,
                     "10.0.0.4"},
        LauncherCase{"jobset",
                     {{"JOBSET_NAME", "tune"},
                      {"JOB_COMPLETION_INDEX", "1"},
                      {"FETTLE_SIZE", "2"},
                      {"FETTLE_ADDRESS", "tune-workers-0-0.tune"}},
                     1,
                     2,
                     0,
                     1,
                     "tune-workers-0-0.tune"},
        LauncherCase{"jobset_without_name",
                     {{"JOB_COMPLETION_INDEX", "1"}, {"FETTLE_SIZE", "2"}, {"FETTLE_ADDRESS", "tune-workers-0-0.tune"}},
                     1,
                     2,
                     0,
                     1,
                     "tune-workers-0-0.tune"}),
    [](const auto& one) { return one.param.name; });

TEST(Launchers, NoneMeansOneProcess) {
  EXPECT_FALSE(place_with({}));
  EXPECT_FALSE(place_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "here"}}));
  // The script of a batch job has these variables, too, although srun did not start it.
  EXPECT_FALSE(place_with({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(Launchers, APodWithOnlyItsIndexTrainsAloneWithAWarning) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(place_with({{"JOB_COMPLETION_INDEX", "1"}}));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AllOf(testing::HasSubstr("this pod trains alone"), testing::HasSubstr("FETTLE_SIZE"),
                             testing::HasSubstr("FETTLE_ADDRESS")));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(place_with({{"PET_NNODES", "1"}, {"PET_NODE_RANK", "0"}, {"JOB_COMPLETION_INDEX", "0"}}));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Launchers, AProcessAloneInASlurmJobOfSeveralNodesWarns) {
  const Variables batch_script{{"SLURM_PROCID", "0"}, {"SLURM_JOB_NUM_NODES", "2"}};
  const Variables interactive_step{
      {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_NUM_NODES", "2"}};
  for (Variables variables : {batch_script, interactive_step}) {
    testing::internal::CaptureStderr();
    EXPECT_FALSE(place_with(variables));
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::AllOf(testing::HasSubstr("trains alone on 1 of 2 nodes"), testing::HasSubstr("srun")));
    variables["SLURM_JOB_NUM_NODES"] = "1";
    testing::internal::CaptureStderr();
    EXPECT_FALSE(place_with(variables));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
}

// After a failure, the agent of the failed process counts a restart, and the other agents do not.
TEST(Launchers, ATorchrunJobIsTheSameAfterARestartOfOneHost) {
  Variables variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"TORCHELASTIC_RUN_ID", "run"}};
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  const std::string job = place_with(variables)->job;
  variables["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_EQ(place_with(variables)->job, job);
}

TEST(Launchers, ThePortIsTheStoresOwn) {
  const Variables common{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};
  EXPECT_NE(place_with(common)->port, 29500);
  Variables other = common;
  other["MASTER_PORT"] = "29501";
  EXPECT_NE(place_with(other)->port, place_with(common)->port);
  other["FETTLE_STORE_PORT"] = "7777";
  EXPECT_EQ(place_with(other)->port, 7777);
}

TEST(Launchers, FirstHostOfSlurmsList) {
  EXPECT_EQ(first_host("gpu[03-05,9],login"), "gpu03");
  EXPECT_EQ(first_host("gpu[3,9]"), "gpu3");
  EXPECT_EQ(first_host("a,gpu[3,9]"), "a");
  EXPECT_EQ(first_host("gpu7"), "gpu7");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace fettle
