// Tests `fettle board` over real sockets: what it shows about runs, who may read and write, and the runs that it
// starts, stops and continues. Also tests fettle_run.json and report.html, which every run writes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "checkpoint/saved/presence.h"
#include "environment.h"
#include "http_client.h"
#include "run_fettle.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

constexpr const char* kToken = "Authorization: Bearer secret\r\n";

std::string encoded(const std::string& text) {
  std::string out;
  for (const unsigned char c : text) {
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", c);
    out += code;
  }
  return out;
}

// Runs a board over `folder`/runs, or over another folder, with the token "secret". It works in `folder`. The
// destructor ends the board and its runs.
class Board {
 public:
  explicit Board(const std::vector<std::string>& flags = {}, const fs::path& runs = "") {
    fs::create_directory(folder / "runs");
    const Environment token("FETTLE_BOARD_TOKEN", "secret");
    const std::string shown = runs.empty() ? folder / "runs" : runs;
    running_.emplace(folder.path(), with({"board", shown, "--port", "0"}, flags), "", folder.path());
    wait_until([&] { return running_->ended() || said().find("/#token=") != std::string::npos; });
    const std::string text = said(), before = "open http://127.0.0.1:";
    const size_t at = text.find(before);
    if (at == std::string::npos) throw std::runtime_error("the board did not start: " + text);
    port = std::stoi(text.substr(at + before.size()));
  }
  ~Board() {
    if (!done_) {
      running_->send(SIGKILL);
      running_->wait();
    }
    for (const auto& entry : fs::recursive_directory_iterator(folder / "runs"))  // ends runs that a failed test left
      if (entry.path().filename().string().starts_with(".fettle-"))
        if (const int64_t run = read_owner(entry.path()).pid; run > 1 && run != getpid())
          kill(static_cast<pid_t>(run), SIGKILL);
  }
  Outcome end(int signal) {
    done_ = true;
    running_->send(signal);
    return running_->wait();
  }
  std::string said() const {
    const auto file = folder / "stderr";
    return fs::exists(file) ? read_text(file) : "";
  }

  Answer send(const std::string& request) const {
    const Socket socket(port);
    socket.send_text(request);
    return answer_of(socket.read_until(""));
  }
  Answer get(const std::string& path, const std::string& headers = "") const {
    return send(http_request(port, path, "", headers));
  }
  Answer post(const std::string& path, const json& body, const std::string& headers = kToken) const {
    return send(http_request(port, path, body.dump(), headers));
  }
  // Returns the entry of a run in the list of runs; null when the run is not listed.
  json run(const std::string& name) const {
    const json list = get("/api/runs").parsed();
    for (const json& one : list["runs"])
      if (one["name"] == name) return one;
    return nullptr;
  }
  std::string state(const std::string& name) const {
    const json one = run(name);
    return one.is_null() ? "not listed" : one["state"].get<std::string>();
  }
  bool becomes(const std::string& name, const std::string& wanted) const {
    return wait_until([&] { return state(name) == wanted; });
  }

  int port = 0;
  TempFolder folder;

 private:
  std::optional<Running> running_;
  bool done_ = false;
};

void write_run(const fs::path& folder, int steps) {
  std::string log;
  for (int step = 1; step <= steps; ++step)
    log += json{{"current_steps", step}, {"loss", 1.0 / step}, {"elapsed_time", "0:00:01"}}.dump() + "\n";
  write_text(folder / "trainer_log.jsonl", log);
}

// Returns what the form of the board sends for a small run: a name and the words of the recipe.
json form(const std::string& name, const std::vector<std::string>& more = {}) {
  std::vector<std::string> words = train_words("unused");
  words.erase(words.begin());
  std::erase_if(words, [](const std::string& word) { return word.starts_with("output_dir="); });
  return {{"name", name}, {"words", with(words, more)}};
}

TEST(Board, ServesAPageThatLoadsNothingFromElsewhere) {
  const Board board;
  const Answer page = board.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, AllOf(HasSubstr("text/html"), HasSubstr("default-src 'none'; script-src 'self'"),
                               HasSubstr("frame-ancestors 'none'"), HasSubstr("nosniff")));
  for (const char* path : {"/", "/style.css", "/script.js"}) {
    const Answer part = board.get(path);
    EXPECT_EQ(part.status, 200) << path;
    EXPECT_THAT(part.body, AllOf(Not(HasSubstr("https://")), Not(HasSubstr("http://")), Not(HasSubstr("//cdn"))));
    EXPECT_THAT(part.body, Not(HasSubstr("innerHTML"))) << "a page may show a text only as text, never as HTML";
  }
  EXPECT_THAT(board.get("/api/runs").parsed()["runs"], IsEmpty());
}

TEST(Board, ShowsCurvesOfRuns) {
  const Board board;
  write_run(board.folder / "runs/a", 3000);
  write_run(board.folder / "runs/deep/b c", 2);
  ASSERT_EQ(board.run("a")["step"], 3000);
  const json got =
      board.get("/api/curves?name=a&name=" + encoded("deep/b c") + "&name=none&points=100&axis=step&from=1001")
          .parsed();
  EXPECT_FALSE(got["runs"].contains("none"));
  const json curve = got["runs"]["a"]["curves"]["loss"];
  EXPECT_THAT(curve["x"], SizeIs(100));
  EXPECT_EQ(curve["values"], 2000);
  EXPECT_EQ(curve["high"][0], 1.0 / 1001);
  EXPECT_EQ(got["runs"]["a"]["names"], json({"loss"}));
  EXPECT_THAT(got["runs"]["deep/b c"]["curves"]["loss"]["x"], IsEmpty());
  EXPECT_THAT(board.get("/api/curves?name=a&points=1e9").parsed()["runs"]["a"]["curves"]["loss"]["x"], SizeIs(3000));
  for (const char* wrong : {"axis=loss", "from=x", "points=", "to=1e999"}) {
    const Answer answer = board.get("/api/curves?name=a&" + std::string(wrong));
    EXPECT_EQ(answer.status, 400) << wrong;
    EXPECT_THAT(answer.parsed()["error"].get<std::string>(), HasSubstr("wanted"));
  }
  std::string many = "/api/curves?x=1";
  for (int i = 0; i < 61; ++i) many += "&name=a" + std::to_string(i);
  EXPECT_THAT(board.get(many).parsed()["error"].get<std::string>(), HasSubstr("at most 60 runs"));
}

TEST(Board, RefusesOtherSitesAndOtherForms) {
  const Board board;
  const std::string host = "127.0.0.1:" + std::to_string(board.port);
  const auto status = [&](const std::string& head) { return board.send(head + "\r\n\r\n").status; };
  EXPECT_EQ(status("GET /api/runs HTTP/1.1\r\nConnection: close\r\nHost: " + host), 200);
  EXPECT_EQ(status("GET /api/runs HTTP/1.1\r\nConnection: close\r\nHost: evil.example"), 403);
  EXPECT_EQ(status("GET / HTTP/1.1\r\nConnection: close\r\nHost: evil.example"), 403);
  EXPECT_EQ(status("GET /api/runs HTTP/1.1\r\nConnection: close"), 200) << "no browser leaves Host out";
  EXPECT_EQ(board.get("/api/runs", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(board.post("/api/check", {{"words", json::array()}}, kToken + std::string("Origin: null\r\n")).status, 403);
  EXPECT_EQ(board.post("/api/check", {{"words", json::array()}}, kToken + ("Origin: http://" + host + "\r\n")).status,
            200);
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "PATCH"})
    EXPECT_EQ(
        status(std::string(method) + " /api/runs HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\nHost: " + host),
        405)
        << method;
  EXPECT_EQ(board.send(http_request(board.port, "/api/check", std::string((1 << 20) + 1, ' '), kToken)).status, 413);
  for (const char* body : {"[1]", "{", "x", "3"})
    EXPECT_EQ(board.send(http_request(board.port, "/api/check", body, kToken)).status, 400) << body;
  const Answer unknown = board.get("/api/other");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("docs/board.md"));
}

TEST(Board, WritesOnlyWithTheToken) {
  const Board board;
  EXPECT_THAT(board.said(), HasSubstr("/#token=secret"));
  for (const char* path :
       {"/api/check", "/api/query", "/api/query/state", "/api/query/end", "/api/start", "/api/resume", "/api/stop"})
    for (const char* token : {"", "Authorization: Bearer wrong\r\n", "Authorization: Bearer secret2\r\n",
                              "Authorization: secret\r\n", "Cookie: token=secret\r\n"}) {
      EXPECT_EQ(board.post(path, form("run"), token).status, 401) << path << " " << token;
      EXPECT_EQ(board.post(path + std::string("?token=secret"), form("run"), token).status, 401);
    }
  EXPECT_THAT(list_tree(board.folder / "runs"), IsEmpty());
  EXPECT_EQ(board.get("/api/board").parsed()["token"], false);
  EXPECT_EQ(board.get("/api/board", kToken).parsed()["token"], true);
}

TEST(Board, OnAllAddressesReadsNeedTheTokenToo) {
  const Board board({"--host", "0.0.0.0"});
  write_run(board.folder / "runs/a", 3);
  for (const char* path : {"/api/board", "/api/runs", "/api/run?name=a", "/api/curves?name=a", "/api/keys",
                           "/api/output?name=a", "/api/answers?name=a"}) {
    EXPECT_EQ(board.get(path).status, 401) << path;
    EXPECT_NE(board.get(path, kToken).status, 401) << path;
  }
  EXPECT_EQ(board.get("/").status, 200) << "the page asks for the token";
  EXPECT_THAT(board.said(), HasSubstr("there is no TLS"));
}

TEST(Board, ReadOnlyHasNothingThatWrites) {
  const Board board({"--read-only"});
  for (const char* path : {"/api/check", "/api/query", "/api/start", "/api/resume", "/api/stop"})
    EXPECT_EQ(board.post(path, form("run")).status, 404) << path;
  EXPECT_EQ(board.get("/api/board").parsed()["read_only"], true);
  EXPECT_THAT(list_tree(board.folder / "runs"), IsEmpty());
}

TEST(Board, ReadsNothingOutsideOfItsFolder) {
  const Board board;
  write_run(board.folder / "outside", 3);
  write_text(board.folder / "outside/train.log", "confidential");
  write_run(board.folder / "runs/a", 3);
  write_text(board.folder / "runs/a/notes.txt", "confidential");
  write_text(board.folder / "runs/a/generated_predictions.jsonl",
             "{\"predict\": \"yes\"}\n{broken\n{\"predict\": \"no\"}\n");
  fs::create_symlink(board.folder / "outside/train.log", board.folder / "runs/a/train.log");
  fs::create_symlink(board.folder / "outside/train.log", board.folder / "runs/a/my_predictions.jsonl");
  fs::create_directory_symlink(board.folder / "outside", board.folder / "runs/link");
  EXPECT_EQ(board.state("link"), "not listed");
  const std::string outside = (board.folder / "outside").string();
  for (const std::string& name :
       {std::string("../outside"), std::string("a/../../outside"), outside, std::string("link"), std::string("./a"),
        std::string("a/"), std::string("a\0b", 3), std::string()})
    for (const char* path : {"/api/run", "/api/output", "/api/answers"}) {
      const Answer answer = board.get(path + ("?name=" + encoded(name)));
      EXPECT_EQ(answer.status, 400) << path << " " << name;
      EXPECT_THAT(answer.body, HasSubstr("there is no run"));
      EXPECT_THAT(board.get("/api/curves?name=" + encoded(name)).parsed()["runs"], IsEmpty());
    }
  for (const char* file : {"notes.txt", "../a/notes.txt", "../../outside/train.log", "my_predictions.jsonl", ""}) {
    const Answer answer = board.get("/api/answers?name=a&file=" + encoded(file));
    EXPECT_EQ(answer.status, 400) << file;
    EXPECT_THAT(answer.body, Not(HasSubstr("confidential")));
  }
  EXPECT_EQ(board.get("/api/output?name=a").status, 400);
  for (const char* path : {"/../outside/train.log", "/%2e%2e/outside/train.log", "/runs/a/notes.txt", "/a/notes.txt"})
    EXPECT_EQ(board.get(path).status, 404) << path;
  const json answers = board.get("/api/answers?name=a&file=generated_predictions.jsonl").parsed();
  EXPECT_EQ(answers, (json{{"rows", {{{"predict", "yes"}}, {{"predict", "no"}}}}, {"next", nullptr}}));
}

// The page asks for 20 rows at a time. Each row comes once and in order, also after lines that are not rows.
TEST(Board, ShowsAllAnswersOfAnEvaluation) {
  const Board board;
  write_run(board.folder / "runs/a", 3);
  std::string text = "no row\n";
  for (int i = 0; i < 45; ++i) {
    text += json{{"prompt", "Frage " + std::to_string(i)}, {"predict", "ä <b>\n"}}.dump() + "\n";
    if (i == 30) text += "{\"prompt\": \"" + std::string(3 << 20, 'x') + "\"}\n";  // longer than the board's blocks
  }
  text.pop_back();  // the last line has no end
  write_text(board.folder / "runs/a/base_predictions.jsonl", text);
  ASSERT_EQ(board.run("a")["step"], 3);
  EXPECT_EQ(board.get("/api/run?name=a").parsed()["answers"], json({"base_predictions.jsonl"}));
  std::vector<json> rows;
  int requests = 0;
  for (json from = 0; !from.is_null() && requests < 20; ++requests) {
    const json part = board.get("/api/answers?name=a&file=base_predictions.jsonl&from=" + from.dump()).parsed();
    EXPECT_LE(part["rows"].size(), 20u);
    rows.insert(rows.end(), part["rows"].begin(), part["rows"].end());
    from = part["next"];
  }
  EXPECT_LT(requests, 20);
  ASSERT_EQ(rows.size(), 45u);
  for (int i = 0; i < 45; ++i)
    EXPECT_EQ(rows[static_cast<size_t>(i)], (json{{"prompt", "Frage " + std::to_string(i)}, {"predict", "ä <b>\n"}}));
}

TEST(Board, NamesOfNewRunsStayBelowTheFolder) {
  const Board board;
  const TempFolder elsewhere;
  fs::create_directory_symlink(elsewhere.path(), board.folder / "runs/link");
  write_run(board.folder / "runs/taken", 1);
  for (const char* name : {"", "..", "../x", "/tmp/x", "a/../b", "a//b", "a/", ".hidden", "-x", "a b", "a\\b", "a;b",
                           "é", "a/b/c/d/e", "link/x", "taken", "checkpoint-2", "a/checkpoint-1"}) {
    const Answer answer = board.post("/api/start", form(name));
    EXPECT_EQ(answer.status, 400) << name;
    EXPECT_THAT(answer.parsed()["error"].get<std::string>(),
                testing::AnyOf(HasSubstr("is not a valid name of a run"), HasSubstr("is a link"),
                               HasSubstr("choose another name")))
        << name;
  }
  EXPECT_THAT(list_tree(elsewhere.path()), IsEmpty());
  EXPECT_EQ(std::distance(fs::recursive_directory_iterator(board.folder / "runs"), {}), 3)
      << "only `link`, `taken` and its log";
  EXPECT_THAT(board.post("/api/start", form("new", {"learning_rate=fast"})).body, HasSubstr("learning_rate"));
  EXPECT_THAT(board.post("/api/start", {{"name", "new"}}).body, HasSubstr("'words'"));
  EXPECT_FALSE(fs::exists(board.folder / "runs/new"));
}

// The form's words become a recipe, the recipe a plan, and the plan a run.
TEST(Board, AFormBecomesAPlanAndARun) {
  const Board board;
  const json asked = form("first/run", {"max_steps=4", "save_strategy=steps", "save_steps=2", "val_size=8",
                                        "eval_strategy=steps", "eval_steps=2", "run_name=<script>alert(1)</script>"});
  EXPECT_THAT(board.post("/api/check", asked).parsed()["yaml"].get<std::string>(), HasSubstr("lora_rank: 4"));
  EXPECT_THAT(board.post("/api/check", {{"words", {"lora_rnak=4"}}}).parsed()["error"].get<std::string>(),
              HasSubstr("lora_rank"));
  for (const char* command : {"plan", "data"}) {
    json query = asked;
    query["command"] = command;
    const json number = board.post("/api/query", query).parsed();
    json state;
    ASSERT_TRUE(
        wait_until([&] { return (state = board.post("/api/query/state", number).parsed())["running"] == false; }));
    ASSERT_EQ(state["code"], 0) << state["err"];
    const json answer = json::parse(state["out"].get<std::string>());
    if (command == std::string("plan"))
      EXPECT_GT(answer["per_device"]["peak_bytes"], 0);
    else
      EXPECT_EQ(answer["eval_examples"], 8);
    EXPECT_EQ(board.post("/api/query/end", number).parsed()["ended"], false);
  }
  EXPECT_THAT(board.post("/api/query", {{"command", "train"}, {"words", json::array()}}).body,
              HasSubstr("only the commands plan and data"));

  ASSERT_EQ(board.post("/api/start", asked).parsed()["name"], "first/run");
  EXPECT_EQ(board.post("/api/start", asked).status, 400) << "the name is taken";
  ASSERT_TRUE(board.becomes("first/run", "finished")) << board.get("/api/output?name=first/run").body;
  const json run = board.run("first/run");
  EXPECT_EQ(run["step"], 4);
  EXPECT_EQ(run["title"], "<script>alert(1)</script>");
  EXPECT_TRUE(run["eval_loss"].is_number());
  EXPECT_THAT(board.get("/api/output?name=first/run").parsed()["text"].get<std::string>(), HasSubstr("train_loss"));

  const json details = board.get("/api/run?name=first/run").parsed(), file = details["run"];
  EXPECT_EQ(details["checkpoints"], json({"checkpoint-2", "checkpoint-4"}));
  EXPECT_TRUE(details["results"]["train_loss"].is_number());
  EXPECT_EQ(file["state"], "finished");
  EXPECT_EQ(file["recipe"]["lora_rank"], 4);
  EXPECT_GT(file["plan"]["peak_bytes"], 0);
  EXPECT_EQ(file["data"]["eval_examples"], 8);
  EXPECT_THAT(file["rows"], SizeIs(4));
  int64_t trained = 0;
  for (const json& piece : file["rows"][0]["pieces"]) trained += piece["trained"] == true;
  EXPECT_GT(trained, 0);
  for (const char* name : {"loss", "lr", "grad_norm", "eval_loss", "host_memory_bytes"})
    EXPECT_THAT(board.get("/api/curves?name=first/run").parsed()["runs"]["first/run"]["names"],
                testing::Contains(name));
  EXPECT_EQ(read_text(board.folder / "runs/first/run/recipe.yaml").find("output_dir") != std::string::npos, true);
}

TEST(Board, StopsARunAndContinuesIt) {
  Board board;
  fs::copy_file(reference_model("llama").parent_path() / "rows.jsonl", board.folder / "own-rows.jsonl");
  ASSERT_EQ(board.post("/api/start", form("long", {"max_steps=100000", "dataset=own-rows.jsonl"})).status, 200);
  ASSERT_TRUE(wait_until([&] {
    const json run = board.run("long");
    return run.is_object() && run["step"] >= 3;
  })) << board.get("/api/output?name=long").body;
  EXPECT_EQ(board.state("long"), "running");
  EXPECT_THAT(board.post("/api/resume", {{"name", "long"}}).body, HasSubstr("already works on"));
  EXPECT_EQ(board.post("/api/stop", {{"name", "long"}}).status, 200);
  ASSERT_TRUE(board.becomes("long", "stopped")) << board.get("/api/output?name=long").body;
  ASSERT_TRUE(wait_until([&] { return board.post("/api/stop", {{"name", "long"}}).status == 400; }));
  EXPECT_THAT(board.post("/api/stop", {{"name", "long"}}).body, HasSubstr("no process works on the run"));
  const int64_t stopped_at = board.run("long")["step"];
  ASSERT_EQ(board.post("/api/resume", {{"name", "long"}}).status, 200);
  ASSERT_TRUE(wait_until([&] { return board.run("long")["step"].get<int64_t>() >= stopped_at + 3; }))
      << board.get("/api/output?name=long").body;
  EXPECT_EQ(board.get("/api/run?name=long").parsed()["run"]["resumed_step"], stopped_at);

  // The board ends, the run goes on. A second board finds and stops it.
  EXPECT_EQ(board.end(SIGTERM).code, 0);
  const auto steps = [&] { return logged_losses(board.folder / "runs/long").size(); };
  const size_t then = steps();
  EXPECT_TRUE(wait_until([&] { return steps() > then + 2; }));
  const Board second({}, board.folder / "runs");
  EXPECT_EQ(second.state("long"), "running");
  EXPECT_THAT(second.get("/api/output?name=long").parsed()["text"].get<std::string>(), HasSubstr("step"));
  EXPECT_EQ(second.post("/api/stop", {{"name", "long"}}).status, 200);
  EXPECT_TRUE(second.becomes("long", "stopped"));

  // The second board runs in another folder. The dataset's path is relative to the first one's.
  ASSERT_TRUE(wait_until([&] { return second.post("/api/resume", {{"name", "long"}}).status == 200; }));
  const size_t before = steps();
  EXPECT_TRUE(wait_until([&] { return steps() > before + 2; })) << second.get("/api/output?name=long").body;
  EXPECT_EQ(second.post("/api/stop", {{"name", "long"}}).status, 200);
  EXPECT_TRUE(second.becomes("long", "stopped"));
}

// A program that gets SIGTERM twice, more than a second apart, ends without a checkpoint.
TEST(Board, ASecondStopStillSavesACheckpoint) {
  const Board board;
  ASSERT_EQ(board.post("/api/start", form("long", {"max_steps=100000", "gradient_accumulation_steps=100"})).status,
            200);
  ASSERT_TRUE(wait_until([&] {
    const json run = board.run("long");
    return run.is_object() && run["step"] >= 1;
  })) << board.get("/api/output?name=long").body;
  pid_t process = 0;
  for (const auto& entry : fs::directory_iterator(board.folder / "runs/long"))
    if (entry.path().filename().string().starts_with(".fettle-"))
      process = static_cast<pid_t>(read_owner(entry.path()).pid);
  ASSERT_GT(process, 1);
  const json first = board.post("/api/stop", {{"name", "long"}}).parsed();
  EXPECT_THAT(first["text"].get<std::string>(), HasSubstr("asked to stop"));
  kill(process, SIGSTOP);  // the step takes longer than the pause between the clicks
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  const Board other({}, board.folder / "runs");
  EXPECT_EQ(other.state("long"), "running");
  for (const Board* one : {&board, &other}) {
    const json second = one->post("/api/stop", {{"name", "long"}}).parsed();
    EXPECT_THAT(second.value("text", second.dump()),
                AllOf(HasSubstr("already stopping"), HasSubstr(fmt::format("`kill {}`", process))));
  }
  kill(process, SIGCONT);
  ASSERT_TRUE(board.becomes("long", "stopped")) << board.get("/api/output?name=long").body;
  EXPECT_THAT(board.get("/api/run?name=long").parsed()["checkpoints"], SizeIs(1));
  ASSERT_TRUE(wait_until([&] { return kill(process, 0) != 0; }));
  for (const auto& entry : fs::directory_iterator(board.folder / "runs/long"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
}

TEST(Board, EndsOnlyProcessesOfFettle) {
  const Board board;
  write_run(board.folder / "runs/mine", 3);
  const auto presence = Presence::alone_in(board.folder / "runs/mine");  // this process, not fettle, works on the run
  EXPECT_EQ(board.state("mine"), "running");
  EXPECT_THAT(board.post("/api/stop", {{"name", "mine"}}).body, HasSubstr("is not a program called fettle"));
}

TEST(Board, SaysWhyARunFailed) {
  const Board board;
  ASSERT_EQ(board.post("/api/start", form("bad", {"dataset=/nowhere/rows.jsonl"})).status, 200);
  ASSERT_TRUE(board.becomes("bad", "failed"));
  EXPECT_THAT(board.get("/api/output?name=bad").parsed()["text"].get<std::string>(), HasSubstr("/nowhere/rows.jsonl"));
  EXPECT_THAT(board.post("/api/resume", {{"name", "bad"}}).body, HasSubstr("no checkpoint to continue from"));
  ASSERT_EQ(board
                .post("/api/start",
                      form("hot", {"learning_rate=1e30", "max_grad_norm=0", "finetuning_type=full", "max_steps=50"}))
                .status,
            200);
  ASSERT_TRUE(board.becomes("hot", "failed"));
  EXPECT_THAT(board.run("hot")["message"].get<std::string>(), HasSubstr("not finite"));
  EXPECT_THAT(read_text(board.folder / "runs/hot/report.html"), HasSubstr("not finite"));
}

TEST(Board, AFolderOrAPortThatCannotBeUsedIsNamed) {
  const TempFolder folder;
  const Outcome none = run_fettle(folder, {"board", (folder / "none").string()});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, AllOf(HasSubstr((folder / "none").string()), HasSubstr("No such file or directory")));
  const Board board;
  const Outcome taken = run_fettle(folder, {"board", folder.path().string(), "--port", std::to_string(board.port)});
  EXPECT_EQ(taken.code, 2);
  EXPECT_THAT(taken.err, AllOf(HasSubstr("already in use"), HasSubstr("--port")));
}

// Returns the data in the page.
json report_data(const std::string& page) {
  const std::string before = "<script type=\"application/json\" id=\"data\">";
  const size_t begin = page.find(before) + before.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(Report, IsWrittenUnlessItIsSwitchedOff) {
  const TempFolder folder;
  const fs::path out = folder / "out";
  ASSERT_EQ(run_fettle(folder, with(train_words(out), {"run_name=<script>alert(1)</script>"})).code, 0);
  const std::string page = read_text(out / "report.html");
  EXPECT_THAT(page,
              AllOf(HasSubstr("<title>&lt;script>alert(1)&lt;/script></title>"), Not(HasSubstr("<script>alert"))));
  const json data = report_data(page);
  EXPECT_EQ(data["summary"]["title"], "<script>alert(1)</script>");
  EXPECT_EQ(data["summary"]["state"], "finished");
  EXPECT_EQ(data["run"], json::parse(read_text(out / "fettle_run.json")));
  EXPECT_EQ(data["results"], json::parse(read_text(out / "all_results.json")));
  ASSERT_THAT(data["curves"]["step"]["loss"]["mean"], SizeIs(6));
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(data["curves"]["step"]["loss"]["mean"][i].dump(), logged_losses(out)[i]);

  const std::vector<std::string> again = {"overwrite_output_dir=true", "html_report=false"};
  ASSERT_EQ(run_fettle(folder, with(train_words(out), again)).code, 0);
  EXPECT_FALSE(fs::exists(out / "report.html")) << "the earlier run's report would be wrong";
  EXPECT_EQ(json::parse(read_text(out / "fettle_run.json"))["state"], "finished");
}

TEST(Report, OfAStoppedRunSaysSo) {
  const TempFolder folder;
  const Running running(folder.path(), with(train_words(folder / "out"), {"max_steps=100000"}));
  ASSERT_TRUE(wait_until([&] { return logged_losses(folder / "out").size() >= 2; }));
  EXPECT_EQ(json::parse(read_text(folder / "out/fettle_run.json"))["state"], "running");
  EXPECT_FALSE(fs::exists(folder / "out/report.html"));
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_EQ(report_data(read_text(folder / "out/report.html"))["summary"]["state"], "stopped");
}

}  // namespace
}  // namespace fettle
