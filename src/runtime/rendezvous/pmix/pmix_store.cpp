// Defines the module fettle_pmix.so: a Store that uses the PMIx server of the launcher (srun --mpi=pmix, mpirun).
//
// SLURM's server does not support publish and lookup. So a key stays in the process that puts it, and other processes
// ask that process for the key. If the key does not exist yet, a plain get returns immediately when the two processes
// are on different hosts, but waits when they are on the same host. If the other host is dead, the get never returns.
// So each get runs in the background, and Fettle sets its own deadline.
#include <pmix.h>
#include <signal.h>
#include <xxhash.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "runtime/rendezvous/launchers.h"
#include "runtime/rendezvous/store.h"

namespace fettle {
namespace {

// Returns a hash of the key as text, because PMIx allows only keys of at most 511 characters.
std::string short_key(const std::string& key) {
  return fmt::format("f.{:016x}{:016x}", XXH3_64bits(key.data(), key.size()),
                     XXH3_64bits_withSeed(key.data(), key.size(), 1));
}

// The state of the requests for one key: the value that they found, and the number of requests that are still open. A
// request may end after its caller has returned.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<std::string> value;
  int open = 0;
};

void take_answer(pmix_status_t status, pmix_value_t* value, void* data) {
  const std::unique_ptr<std::shared_ptr<Answers>> held(static_cast<std::shared_ptr<Answers>*>(data));
  Answers& answers = **held;
  const std::lock_guard lock(answers.mutex);
  --answers.open;
  if (status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_BYTE_OBJECT && !answers.value)
    answers.value.emplace(value->data.bo.bytes, value->data.bo.size);
  answers.changed.notify_all();
}

class PmixStore : public Store {
 public:
  PmixStore(const pmix_proc_t& self, int size) : self_(self), size_(size) {}
  // If the server did not answer end_job(), PMIx_Finalize would wait forever, so it is not called then.
  ~PmixStore() override {
    if (server_answers_) PMIx_Finalize(nullptr, 0);
  }

  void put(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    pmix_value_t given;
    PMIX_VALUE_CONSTRUCT(&given);
    given.type = PMIX_BYTE_OBJECT;
    given.data.bo.bytes = const_cast<char*>(value.data());
    given.data.bo.size = value.size();
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, short_key(key).c_str(), &given);
    if (status == PMIX_SUCCESS) status = PMIx_Commit();
    if (status != PMIX_SUCCESS)
      throw DeviceError(
          "PMIx refuses a value: {}; start all processes again, with redis-server installed on their hosts",
          PMIx_Error_string(status));
  }

  std::optional<std::string> try_get(const std::string& key, int owner) override {
    const auto answers = std::make_shared<Answers>();
    std::unique_lock lock(answers->mutex);
    for (int rank = owner < 0 ? 0 : owner; rank < (owner < 0 ? size_ : owner + 1); ++rank)
      if (request(short_key(key), rank, answers)) ++answers->open;
    answers->changed.wait_for(lock, kAnswerTime, [&] { return answers->value || answers->open == 0; });
    return answers->value;
  }

  // Waits only briefly for the server's answer, because SLURM's server does not answer while it cannot reach the other
  // hosts.
  void end_job(int exit_code, const std::string& message) override {
    const auto answered = std::make_shared<std::promise<void>>();
    std::thread([=] {
      PMIx_Abort(exit_code, message.c_str(), nullptr, 0);
      answered->set_value();
    }).detach();
    server_answers_ = answered->get_future().wait_for(std::chrono::seconds(1)) == std::future_status::ready;
  }

 private:
  static constexpr auto kAnswerTime = std::chrono::milliseconds(1500);

  bool request(const std::string& key, int rank, const std::shared_ptr<Answers>& answers) const {
    pmix_proc_t from;
    PMIX_PROC_LOAD(&from, self_.nspace, static_cast<pmix_rank_t>(rank));
    // PMIx may read these options after the call, so they live as long as the process.
    static pmix_info_t* const wishes = [] {
      pmix_info_t* made = nullptr;
      PMIX_INFO_CREATE(made, 2);
      const int seconds = 1;
      const bool yes = true;
      PMIX_INFO_LOAD(&made[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
      PMIX_INFO_LOAD(&made[1], PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
      return made;
    }();
    auto* const held = new std::shared_ptr<Answers>(answers);
    if (PMIx_Get_nb(&from, key.c_str(), wishes, 2, take_answer, held) == PMIX_SUCCESS) return true;
    delete held;
    return false;
  }

  pmix_proc_t self_;
  int size_;
  std::atomic<bool> server_answers_ = true;
  std::mutex mutex_;
};

// Returns a number about the job or a process; -1 when the server does not have it.
int number_of(const pmix_proc_t& about, const char* key) {
  pmix_value_t* value = nullptr;
  if (PMIx_Get(&about, key, nullptr, 0, &value) != PMIX_SUCCESS || value == nullptr) return -1;
  int out = -1;
  if (value->type == PMIX_UINT32) out = static_cast<int>(value->data.uint32);
  if (value->type == PMIX_UINT16) out = value->data.uint16;
  PMIX_VALUE_RELEASE(value);
  return out;
}

}  // namespace
}  // namespace fettle

extern "C" fettle::Store* fettle_open_pmix_store(fettle::ProcessPlace& place, std::string& fault) {
  using namespace fettle;
  // PMIx starts a thread, which inherits this thread's signal mask. If a signal interrupted the PMIx thread, a
  // message to the server would be lost. So this thread blocks all signals while PMIx starts.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pmix_proc_t self;
  const pmix_status_t status = PMIx_Init(&self, nullptr, 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (status != PMIX_SUCCESS) {
    fault = fmt::format("PMIx_Init: {}", PMIx_Error_string(status));
    return nullptr;
  }
  pmix_proc_t job;
  PMIX_PROC_LOAD(&job, self.nspace, PMIX_RANK_WILDCARD);
  place.rank = static_cast<int>(self.rank);
  if (const int size = number_of(job, PMIX_JOB_SIZE); size > 0) place.size = size;
  const int local_rank = number_of(self, PMIX_LOCAL_RANK), local_size = number_of(job, PMIX_LOCAL_SIZE);
  if (local_rank >= 0 && local_size > 0)
    place.local_rank = local_rank, place.local_size = local_size, place.local_known = true;
  return new PmixStore(self, place.size);
}
