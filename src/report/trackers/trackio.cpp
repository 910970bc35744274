// trackio: the local database of a project, which `trackio show --project NAME` displays. It works without a network.
//
// Source: the tables of trackio's sqlite_storage.py. Columns that a later version of trackio adds get their defaults.
#include <sqlite3.h>

#include <ctime>
#include <functional>

#include "base/environment.h"
#include "base/error.h"
#include "base/pattern.h"
#include "hub/settings.h"
#include "report/trackers/tracker.h"

namespace fettle {
namespace {

constexpr int kBusyMilliseconds = 5000;  // how long to wait while another process writes

// The name of the file has the project's letters and digits, of all alphabets, and its - and _.
std::filesystem::path database_file(const std::string& project) {
  static const Pattern others(R"((*UTF)[^\p{L}\p{N}_-])");
  std::string name = others.replace_all(project, "");
  if (name.empty()) name = "default";
  std::filesystem::path folder = environment("TRACKIO_DIR");
  if (folder.empty()) folder = hugging_face_home() / "trackio";
  return folder / (name + ".db");
}

std::string iso_time(double seconds) {
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  std::string text(32, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S+00:00", &parts));
  return text;
}

class Trackio : public Tracker {
 public:
  explicit Trackio(const TrackedRun& run) : run_(run), file_(database_file(run.project)) {
    std::error_code ignored;
    std::filesystem::create_directories(file_.parent_path(), ignored);
    sqlite3* database = nullptr;
    const int code = sqlite3_open(file_.c_str(), &database);
    database_.reset(database);
    check(code);
    sqlite3_busy_timeout(database, kBusyMilliseconds);
    refuse_older_tables();
    execute(
        "CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp "
        "TEXT "
        "NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT)");
    execute(
        "CREATE TABLE IF NOT EXISTS configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT "
        "NOT NULL, config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id))");
    execute("DELETE FROM metrics WHERE run_id = ? AND step > ?", {run.id, run.resumed_step});
    nlohmann::json config = run.config;
    config["_Created"] = iso_time(static_cast<double>(run.started.seconds));
    execute("INSERT OR IGNORE INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)",
            {run.id, run.name, config.dump(), config["_Created"].get<std::string>()});
  }

  void log(const TrackedFigures& figures) override {
    execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
            {run_.id, iso_time(figures.time), run_.name, figures.step,
             nlohmann::json(tracked_names(figures.values)).dump()});
  }
  void finish(bool) override {}

 private:
  struct Close {
    void operator()(sqlite3* database) const { sqlite3_close(database); }
  };

  void check(int code) const {
    if (code == SQLITE_OK || code == SQLITE_DONE) return;
    const int kind = code & 0xff;  // without SQLite's details
    const bool cannot_write =
        kind == SQLITE_CANTOPEN || kind == SQLITE_READONLY || kind == SQLITE_PERM || kind == SQLITE_FULL;
    throw UserError("{}: {}{}", file_.string(), database_ ? sqlite3_errmsg(database_.get()) : sqlite3_errstr(code),
                    cannot_write ? "; set TRACKIO_DIR to a folder that can be written" : "");
  }
  // Throws UserError, before anything is written, when the table of metrics has no run_id. trackio 0.24 introduced this
  // column. Later versions add it when they open a database.
  void refuse_older_tables() const {
    bool has_table = false, has_run_id = false;
    execute("SELECT name FROM pragma_table_info('metrics')", {}, [&](std::string_view column) {
      has_table = true;
      has_run_id = has_run_id || column == "run_id";
    });
    if (has_table && !has_run_id)
      throw UserError(
          "{}: this database is from an older trackio; open it once with trackio 0.24 or later, or choose another "
          "`project`",
          file_.string());
  }
  // Runs one statement with these texts and integers as its parameters. Calls `row` with the first column of each row,
  // a text.
  void execute(
      const char* text, const std::vector<nlohmann::json>& values = {},
      const std::function<void(std::string_view)>& row = [](std::string_view) {}) const {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v2(database_.get(), text, -1, &statement, nullptr));
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owner(statement, sqlite3_finalize);
    for (size_t i = 0; i < values.size(); ++i) {
      const int place = static_cast<int>(i) + 1;
      if (values[i].is_number_integer()) {
        check(sqlite3_bind_int64(statement, place, values[i].get<int64_t>()));
      } else {
        const auto& value = values[i].get_ref<const std::string&>();
        check(sqlite3_bind_text(statement, place, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT));
      }
    }
    int code = sqlite3_step(statement);
    for (; code == SQLITE_ROW; code = sqlite3_step(statement))
      row({reinterpret_cast<const char*>(sqlite3_column_text(statement, 0)),
           static_cast<size_t>(sqlite3_column_bytes(statement, 0))});
    check(code);
  }

  TrackedRun run_;
  std::filesystem::path file_;
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace

std::unique_ptr<Tracker> open_trackio(const TrackedRun& run) {
  return std::make_unique<Trackio>(run);
}

}  // namespace fettle
