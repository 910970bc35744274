// MLflow: a run on the tracking server that MLFLOW_TRACKING_URI names.
//
// Source: MLflow's REST API 2.0 (experiments, runs/search, runs/create, runs/log-batch, runs/update). The server
// chooses the id of a run. So Fettle tags the run with TrackedRun::id, and finds it by this tag when training resumes.
// Unlike the other trackers, MLflow gets the names of trainer_state.json, as from transformers' MLflowCallback.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "hub/http.h"
#include "report/trackers/tracker.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

constexpr std::ptrdiff_t kMetricsInOneCall = 1000;  // limits of the API
constexpr size_t kParamsInOneCall = 100;
constexpr size_t kLongestParam = 6000;
constexpr const char* kIdTag = "fettle.run_id";

HubSettings server_of_environment() {
  HubSettings out;
  out.endpoint = environment("MLFLOW_TRACKING_URI");
  while (out.endpoint.ends_with('/')) out.endpoint.pop_back();
  if (!out.endpoint.starts_with("http://") && !out.endpoint.starts_with("https://"))
    throw UserError(
        "MLFLOW_TRACKING_URI is {}, wanted the address of a server: start one with `mlflow server` and set "
        "MLFLOW_TRACKING_URI=http://127.0.0.1:5000",
        out.endpoint.empty() ? "not set" : "'" + without_login(out.endpoint) + "'");
  const std::string user = environment("MLFLOW_TRACKING_USERNAME"), password = environment("MLFLOW_TRACKING_PASSWORD");
  if (!user.empty() && !password.empty()) {
    const size_t host = out.endpoint.find("://") + 3;
    out.endpoint.insert(host, escaped(user, false) + ":" + escaped(password, false) + "@");
  } else {
    out.token = environment("MLFLOW_TRACKING_TOKEN");
    check_token(out.token, "MLFLOW_TRACKING_TOKEN");
  }
  return out;
}

// Returns the value for JSON. NaN and infinity become strings, because JSON has no numbers for them. MLflow's server
// accepts these strings.
Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

int64_t milliseconds(double seconds) {
  return std::llround(seconds * 1000);
}

// Replaces each character that MLflow does not allow in names by "_". MLflow allows only letters, digits, spaces and
// _-./:.
std::string allowed_name(std::string name) {
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 &&
        std::string_view("_-./: ").find(c) == std::string_view::npos)
      c = '_';
  return name;
}

// Returns the text of a field; "" if there is no such text.
std::string reply_text(const Json& reply, const char* field) {
  const bool found = reply.is_object() && reply.contains(field) && reply[field].is_string();
  return found ? reply[field].get<std::string>() : "";
}

class Mlflow : public Tracker {
 public:
  explicit Mlflow(const TrackedRun& run)
      : run_(run), server_(server_of_environment()), has_params_(run.resumed_step > 0) {}

  void log(const TrackedFigures& figures) override { logged_.push_back(figures); }

  // The first call opens the run on the server. The constructor does not open it, because the server may be down when
  // training starts.
  void flush() override {
    open();
    for (const TrackedFigures& figures : std::exchange(logged_, {})) {
      for (const auto& [name, value] : has_older_names_ ? tracked_names(figures.values) : figures.values)
        waiting_.push_back({{"key", allowed_name(name)},
                            {"value", number(value)},
                            {"timestamp", milliseconds(figures.time)},
                            {"step", figures.step}});
    }
    while (!waiting_.empty()) {
      const auto end = waiting_.begin() + std::min(std::ssize(waiting_), kMetricsInOneCall);
      call("runs/log-batch", {{"run_id", id_}, {"metrics", Json(std::vector<Json>(waiting_.begin(), end))}});
      waiting_.erase(waiting_.begin(), end);
    }
  }

  void finish(bool succeeded) override {
    flush();
    call("runs/update", {{"run_id", id_},
                         {"status", succeeded ? "FINISHED" : "FAILED"},
                         {"end_time", milliseconds(static_cast<double>(std::time(nullptr)))}});
  }

 private:
  // Returns the reply of one function of the API. Throws UserError with the server's message when the server refuses.
  Json call(const std::string& function, const Json& request) const {
    return parsed(post(function, request), function, false);
  }

  HttpReply post(const std::string& function, const Json& request) const {
    return http_post(server_, server_.endpoint + "/api/2.0/mlflow/" + function,
                     {request.dump(-1, ' ', false, Json::error_handler_t::replace)});
  }

  // With `may_be_missing`, returns null when the requested object does not exist.
  Json parsed(const HttpReply& reply, const std::string& function, bool may_be_missing) const {
    Json out = Json::parse(reply.body, nullptr, false);
    if (reply.status == 200 && out.is_object()) return out;
    if (may_be_missing && reply_text(out, "error_code") == "RESOURCE_DOES_NOT_EXIST") return nullptr;
    if (reply.status == 401 || reply.status == 403)
      throw UserError(
          "{} refuses access (status {}); set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and "
          "MLFLOW_TRACKING_PASSWORD",
          host_of(server_.endpoint), reply.status);
    const std::string message = reply_text(out, "message");
    throw UserError("{} answers {} with status {}: {}", host_of(server_.endpoint), function, reply.status,
                    message.empty() ? "the answer is not MLflow's" : message);
  }

  std::string experiment() const {
    if (const std::string id = environment("MLFLOW_EXPERIMENT_ID"); !id.empty()) return id;
    std::string name = environment("MLFLOW_EXPERIMENT_NAME");
    if (name.empty()) name = run_.project;
    const std::string by_name = "experiments/get-by-name?experiment_name=" + escaped(name, false);
    const HttpReply reply = http_get(server_, server_.endpoint + "/api/2.0/mlflow/" + by_name, 1);
    const Json found = parsed(reply, "experiments/get-by-name", true);
    if (found.is_null()) return call("experiments/create", {{"name", name}}).at("experiment_id");
    const Json& experiment = found.at("experiment");
    if (experiment.value("lifecycle_stage", "active") == "deleted")
      throw UserError(
          "the experiment '{}' was deleted on {}; restore it, or set project or MLFLOW_EXPERIMENT_NAME to "
          "another name",
          name, host_of(server_.endpoint));
    return experiment.at("experiment_id");
  }

  // Uses the MLflow run that MLFLOW_RUN_ID names. If the variable is not set, looks for the MLflow run that an earlier
  // start of this training made, and makes a new one if there is none.
  void open() {
    if (!id_.empty()) return;
    try {
      std::string id = environment("MLFLOW_RUN_ID");
      const std::string experiment_id = id.empty() ? experiment() : "";
      if (id.empty()) {
        const Json found = call("runs/search", {{"experiment_ids", {experiment_id}},
                                                {"filter", fmt::format("tags.`{}` = '{}'", kIdTag, run_.id)},
                                                {"max_results", 1}});
        const Json runs = found.value("runs", Json::array());
        if (!runs.empty()) id = runs[0].at("info").at("run_id");
      }
      if (id.empty()) {
        id = make(experiment_id);
        has_params_ = false;
      } else {
        call("runs/update", {{"run_id", id}, {"status", "RUNNING"}});
        if (run_.resumed_step > 0) has_older_names_ = has_older_names(id);
      }
      if (!has_params_) send_params(id);
      id_ = id;
    } catch (const Json::exception& error) {
      throw UserError("{}: the answer is not MLflow's: {}", host_of(server_.endpoint), error.what());
    }
  }

  // Returns whether the run has figures of an older Fettle, which sent "train/loss" instead of "loss".
  bool has_older_names(const std::string& id) const {
    const std::string by_id = "runs/get?run_id=" + escaped(id, false);
    const HttpReply reply = http_get(server_, server_.endpoint + "/api/2.0/mlflow/" + by_id, 1);
    const Json data = parsed(reply, "runs/get", false).at("run").value("data", Json::object());
    const Json metrics = data.value("metrics", Json::array());
    return std::ranges::any_of(metrics, [](const Json& one) { return one.at("key") == "train/epoch"; });
  }

  std::string make(const std::string& experiment_id) const {
    Json tags = {{{"key", kIdTag}, {"value", run_.id}}, {{"key", "mlflow.source.name"}, {"value", "fettle"}}};
    const Json made = call("runs/create", {{"experiment_id", experiment_id},
                                           {"run_name", run_.name},
                                           {"start_time", milliseconds(static_cast<double>(run_.started.seconds))},
                                           {"tags", tags}});
    return made.at("run").at("info").at("run_id");
  }

  // Sends the recipe's keys. If the run has another value of a key, the server refuses it (status 400).
  void send_params(const std::string& id) {
    Json params = Json::array();
    auto send = [&] {
      if (params.empty()) return;
      const HttpReply reply =
          post("runs/log-batch", {{"run_id", id}, {"params", std::exchange(params, Json::array())}});
      if (reply.status != 400)
        parsed(reply, "runs/log-batch", false);
      else if (!std::exchange(warned_, true))
        warn("report_to: mlflow: {} refuses a part of the run's configuration: {}", host_of(server_.endpoint),
             reply_text(Json::parse(reply.body, nullptr, false), "message"));
    };
    for (const auto& [key, value] : run_.config.items()) {
      std::string text =
          value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, Json::error_handler_t::replace);
      if (text.size() > kLongestParam) text = text.substr(0, kLongestParam - 3) + "...";
      params.push_back({{"key", allowed_name(key)}, {"value", text}});
      if (params.size() == kParamsInOneCall) send();
    }
    send();
    has_params_ = true;
  }

  TrackedRun run_;
  HubSettings server_;
  bool has_params_;                     // whether MLflow's run has the recipe's keys
  bool warned_ = false;                 // whether a warning said that the server refuses some of them
  bool has_older_names_ = false;        // whether MLflow's run has "train/loss", so that its curves go on
  std::string id_;                      // MLflow's id of the run; empty until the server has answered
  std::vector<TrackedFigures> logged_;  // figures that are not in waiting_ yet
  std::vector<Json> waiting_;           // metrics that the server has not accepted yet
};

}  // namespace

std::unique_ptr<Tracker> open_mlflow(const TrackedRun& run) {
  return std::make_unique<Mlflow>(run);
}

}  // namespace fettle
