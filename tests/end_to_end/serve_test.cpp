// Tests `fettle serve` over real sockets: whole and streamed answers, clients that disconnect or send invalid requests,
// and how the server ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <set>

#include "http_client.h"
#include "run_fettle.h"
#include "spoil_token.h"

namespace fettle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}"
    "{% if short is defined %}{% else %}{{ 'long' }}{% endif %}{% if add_generation_prompt %}a|{% endif %}";

// Runs a server of a small model with a chat template. The destructor ends the server.
class Served {
 public:
  explicit Served(const std::vector<std::string>& flags = {},
                  const std::function<void(const std::filesystem::path&)>& change = {}) {
    std::filesystem::copy(reference_model("llama"), folder_ / "model");
    if (change) change(folder_ / "model");
    write_text(folder_ / "model/chat_template.jinja", kTemplate);
    running_.emplace(folder_.path(),
                     with({"serve", "model_name_or_path=" + (folder_ / "model").string(), "plugin=cpu",
                           "do_sample=false", "max_new_tokens=24", "--port", "0", "--name", "tiny", "--rows", "4"},
                          flags));
    wait_until([&] { return running_->ended() || said().find("/v1 (") != std::string::npos; });
    const std::string text = said(), before = "http://127.0.0.1:";
    const size_t at = text.find(before);
    if (at == std::string::npos) throw std::runtime_error("the server did not start: " + text);
    port = std::stoi(text.substr(at + before.size()));
  }
  ~Served() {
    if (done_) return;
    running_->send(SIGKILL);
    running_->wait();
  }
  void send_signal(int signal) const { running_->send(signal); }
  Outcome wait() {
    done_ = true;
    return running_->wait();
  }
  std::string said() const {
    const auto file = folder_ / "stderr";
    return std::filesystem::exists(file) ? read_text(file) : "";
  }

  std::string request(const std::string& path, const std::string& body, const std::string& headers = "") const {
    return http_request(port, path, body, headers);
  }
  Answer ask(const std::string& path, const std::string& body = "", const std::string& headers = "") const {
    const Socket socket(port);
    socket.send_text(request(path, body, headers));
    return answer_of(socket.read_until(""));
  }

  int port = 0;

 private:
  TempFolder folder_;
  std::optional<Running> running_;
  bool done_ = false;
};

json reference() {
  return json::parse(std::ifstream(reference_model("llama") / "reference.json"))["greedy"];
}

std::string greedy_body(int number, const json& more = json::object()) {
  json body{{"prompt", reference()[number]["prompt"]}};
  body.update(more);
  return body.dump();
}

// Returns a request whose reply has about 120 tokens.
std::string long_body(int seed) {
  return greedy_body(
      0, {{"max_tokens", 1000}, {"temperature", 2}, {"top_p", 1}, {"top_k", 0}, {"seed", seed}, {"stream", true}});
}

class Serve : public testing::Test {
 protected:
  static void SetUpTestSuite() { server = std::make_unique<Served>(); }
  static void TearDownTestSuite() { server = nullptr; }
  static std::unique_ptr<Served> server;
};
std::unique_ptr<Served> Serve::server;

TEST_F(Serve, AnswersWhole) {
  const Answer answer = server->ask("/v1/completions", greedy_body(0, {{"model", "tiny"}}));
  EXPECT_EQ(answer.status, 200);
  const json got = answer.parsed();
  EXPECT_EQ(got["choices"][0]["text"], reference()[0]["base"]["text"]);
  EXPECT_EQ(got["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(got["usage"], json({{"prompt_tokens", 8}, {"completion_tokens", 24}, {"total_tokens", 32}}));
}

TEST_F(Serve, AStreamHasTheTextOfTheWholeAnswer) {
  const std::string talk = R"("messages": [{"role": "user", "content": "rizb"}], "max_tokens": 9, "logprobs": true)";
  const json whole = server->ask("/v1/chat/completions", "{" + talk + "}").parsed();
  const Answer stream = server->ask("/v1/chat/completions",
                                    "{" + talk + R"(, "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_THAT(stream.head, HasSubstr("text/event-stream"));
  std::string text;
  size_t chances = 0;
  json usage;
  std::istringstream lines(stream.body);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const json event = json::parse(line.substr(6));
    if (!event["usage"].is_null()) usage = event["usage"];
    for (const json& choice : event["choices"]) {
      text += choice["delta"].value("content", "");
      if (choice["logprobs"].is_object()) chances += choice["logprobs"]["content"].size();
    }
  }
  EXPECT_EQ(text, whole["choices"][0]["message"]["content"]);
  EXPECT_EQ(usage, whole["usage"]);
  EXPECT_EQ(chances, 9u);
  EXPECT_EQ(whole["choices"][0]["logprobs"]["content"].size(), 9u);
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
}

// HTTP/1.0 has no chunks: there, an answer of unknown length ends with the connection.
TEST_F(Serve, AnswersClientsOfHttp10WithoutChunks) {
  for (const bool stream : {false, true}) {
    const std::string body = greedy_body(0, {{"stream", stream}});
    std::string request = http_request(server->port, "/v1/completions", body);
    request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
    const Socket socket(server->port);
    socket.send_text(request);
    const Answer answer = answer_of(socket.read_until(""));
    EXPECT_EQ(answer.status, 200);
    EXPECT_THAT(answer.head, Not(HasSubstr("Transfer-Encoding")));
    if (stream)
      EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n")) << answer.body;
    else
      EXPECT_EQ(answer.parsed()["choices"][0]["text"], reference()[0]["base"]["text"]);
  }
}

TEST_F(Serve, NamesItselfAndItsModel) {
  EXPECT_EQ(server->ask("/health").parsed()["status"], "ok");
  const json listed = server->ask("/v1/models").parsed()["data"][0];
  EXPECT_EQ(listed["id"], "tiny");
  EXPECT_EQ(server->ask("/v1/models/tiny").parsed(), listed);
  const Answer other = server->ask("/v1/models/org/other");
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(other.parsed()["error"]["code"], "model_not_found");
  EXPECT_THAT(other.body, HasSubstr("the model 'org/other' is not on this server; use 'tiny'"));
  const Answer page = server->ask("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("text/html"));
  EXPECT_THAT(page.body, Not(HasSubstr("https://"))) << "the page loads nothing from elsewhere";
}

TEST_F(Serve, SeveralRepliesOfARequestAreThoseOfTheirSeeds) {
  json body = json::parse(long_body(3));
  body["stream"] = false;
  body["max_tokens"] = 12;
  const json alone = server->ask("/v1/completions", body.dump()).parsed();
  body["n"] = 6;  // more than the server has rows
  const json whole = server->ask("/v1/completions", body.dump()).parsed();
  ASSERT_EQ(whole["choices"].size(), 6u);
  EXPECT_EQ(whole["choices"][0]["text"], alone["choices"][0]["text"]);
  std::set<std::string> texts;
  for (const json& choice : whole["choices"]) texts.insert(choice["text"].get<std::string>());
  EXPECT_EQ(texts.size(), 6u);
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 8) << "the prompt counts once";
  EXPECT_GT(whole["usage"]["completion_tokens"], 24) << "the replies count together";

  body["stream"] = true;
  std::vector<std::string> streamed(6);
  std::istringstream lines(server->ask("/v1/completions", body.dump()).body);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("data: {")) continue;
    const json event = json::parse(line.substr(6));
    for (const json& choice : event["choices"])
      streamed[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
  }
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(streamed[i], whole["choices"][i]["text"]) << i;
}

TEST_F(Serve, SeveralPromptsGetTheRepliesOfRequestsOfTheirOwn) {
  json body{{"prompt", json::array()}, {"max_tokens", 6}, {"n", 2}, {"seed", 3}, {"temperature", 1}};
  json wanted = json::array();
  int64_t tokens = 0;
  for (int i = 0; i < 2; ++i) {
    body["prompt"] = reference()[i]["prompt"];
    const json alone = server->ask("/v1/completions", body.dump()).parsed();
    for (const json& choice : alone["choices"]) wanted.push_back(choice["text"]);
    tokens += alone["usage"]["prompt_tokens"].get<int64_t>();
  }
  body["prompt"] = json::array();
  for (int i = 0; i < 2; ++i) body["prompt"].push_back(reference()[i]["prompt"]);
  const json whole = server->ask("/v1/completions", body.dump()).parsed();
  ASSERT_EQ(whole["choices"].size(), 4u) << whole;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(whole["choices"][i]["index"], i);
    EXPECT_EQ(whole["choices"][i]["text"], wanted[i]) << i;
  }
  EXPECT_EQ(whole["usage"]["prompt_tokens"], tokens);
}

TEST_F(Serve, TheTemplateGetsTheVariablesOfARequest) {
  json body{{"messages", {{{"role", "user"}, {"content", "rizb"}}}}, {"max_tokens", 1}};
  const json usual = server->ask("/v1/chat/completions", body.dump()).parsed();
  body["chat_template_kwargs"] = {{"short", true}};
  const json shorter = server->ask("/v1/chat/completions", body.dump()).parsed();
  EXPECT_LT(shorter["usage"]["prompt_tokens"], usual["usage"]["prompt_tokens"]);
}

TEST_F(Serve, PenaltiesChangeAReply) {
  const auto text = [&](const json& more) {
    return server->ask("/v1/completions", greedy_body(0, more)).parsed()["choices"][0]["text"];
  };
  EXPECT_EQ(text({{"repetition_penalty", 1}, {"min_p", 0}}), reference()[0]["base"]["text"]);
  EXPECT_NE(text({{"repetition_penalty", 0.01}}), reference()[0]["base"]["text"]);
}

TEST_F(Serve, EightClientsGetTheirOwnReplies) {
  std::vector<std::string> got(8);
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&got, i] {
      const Answer answer = server->ask("/v1/completions", greedy_body(i % 2));
      got[static_cast<size_t>(i)] =
          answer.status == 200 ? answer.parsed()["choices"][0]["text"].get<std::string>() : answer.body;
    });
  for (std::thread& client : clients) client.join();
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(got[static_cast<size_t>(i)], reference()[i % 2]["base"]["text"].get<std::string>());
}

TEST_F(Serve, AClientThatLeavesFreesItsRow) {
  for (int i = 0; i < 12; ++i) {
    const Socket socket(server->port);
    socket.send_text(server->request("/v1/completions", long_body(i)));
    // The client leaves during the reply, or before it.
    const std::string wanted = i % 2 == 0 ? "data: " : "HTTP/1.1 200";
    EXPECT_THAT(socket.read_until(wanted), HasSubstr(wanted));
  }
  EXPECT_TRUE(wait_until([&] {
    const json now = server->ask("/health").parsed();
    return now["writing"] == 0 && now["waiting"] == 0;
  }));
  EXPECT_EQ(server->ask("/v1/completions", greedy_body(1)).status, 200);
}

// For each of these clients, a thread of the server is blocked in a write. The other replies continue.
TEST_F(Serve, ClientsThatNeverReadDelayNoOther) {
  std::vector<std::unique_ptr<Socket>> clients;
  for (int i = 0; i < 16; ++i) {  // the server has four rows
    clients.push_back(std::make_unique<Socket>(server->port, Buffers::kSmall));
    json body = json::parse(long_body(i));
    body.erase("prompt");
    body["messages"] = json::array({{{"role", "user"}, {"content", "rizb"}}});
    body["logprobs"] = true;
    body["top_logprobs"] = 20;  // makes replies of up to 160 KB
    clients.back()->send_text(server->request("/v1/chat/completions", body.dump()));
  }
  EXPECT_TRUE(wait_until([&] {
    const json now = server->ask("/health").parsed();
    return now["writing"] == 0 && now["waiting"] == 0 && clients.back()->waiting_bytes() > 0;
  }));
  EXPECT_EQ(server->ask("/v1/completions", greedy_body(0)).parsed()["choices"][0]["text"],
            reference()[0]["base"]["text"]);
  int blocked = 0;  // clients whose replies were too long for the buffers
  for (const auto& client : clients) {
    const size_t waiting = client->waiting_bytes();
    const std::string all = client->read_until("");
    blocked += all.size() > waiting;
    EXPECT_TRUE(answer_of(all).body.ends_with("data: [DONE]\n\n"));
  }
  EXPECT_GE(blocked, 5) << "as many clients as rows do not show that a blocked client keeps no row";
}

TEST_F(Serve, BadRequestsGetAnErrorThatSaysWhatIsWrong) {
  struct Bad {
    std::string path, body;
    int status;
    std::string says;
  };
  const std::string many(20000, 'a');
  for (const Bad& bad : std::vector<Bad>{
           {"/v1/completions", "{", 400, "not valid JSON"},
           {"/v1/completions", R"({"prompt": "a", "n": 30})", 400, "give an integer from 1 to 16"},
           {"/v1/completions", R"({"prompt": ")" + many + "\"}", 400, "the model takes at most 128"},
           {"/v1/completions", R"({"prompt": ""})", 400, "the prompt is empty"},
           {"/v1/completions", R"({"prompt": [100000]})", 400, "vocabulary"},
           {"/v1/completions", R"({"prompt": "a", "model": "other"})", 404, "use 'tiny'"},
           {"/v1/chat/completions", R"({"messages": [{"role": "user"}]})", 400, "no 'content'"},
           {"/v1/embeddings", "{}", 404, "POST /v1/embeddings is not known"},
           {"/v1/completions", "{\"prompt\": \"" + std::string(9 << 20, 'a') + "\"}", 413, "larger than"}}) {
    const Answer answer = server->ask(bad.path, bad.body);
    EXPECT_EQ(answer.status, bad.status) << bad.path << " " << bad.body.substr(0, 80);
    EXPECT_THAT(answer.body, HasSubstr(bad.says));
    EXPECT_TRUE(answer.parsed()["error"].contains("message"));
  }
}

TEST_F(Serve, NonsenseOnASocketDoesNotHarmIt) {
  for (const std::string text :
       {"garbage\r\n\r\n", "POST /v1/completions HTTP/1.1\r\nContent-Length: 99\r\n\r\n{", "\x16\x03\x01\x02", ""}) {
    const Socket socket(server->port);
    if (!text.empty()) socket.send_text(text);
  }
  EXPECT_EQ(server->ask("/health").status, 200);
}

TEST_F(Serve, PagesOfOtherSitesAreRefused) {
  EXPECT_EQ(server->ask("/v1/models", "", "Origin: http://evil.example\r\n").status, 403);
  const Socket socket(server->port);
  socket.send_text("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer_of(socket.read_until("")).status, 403);
  const std::string own = "Origin: http://127.0.0.1:" + std::to_string(server->port) + "\r\n";
  EXPECT_EQ(server->ask("/v1/models", "", own).status, 200);
}

TEST_F(Serve, ANameThatOnlyLooksLikeThisMachineIsRefused) {
  const Socket socket(server->port);
  socket.send_text("GET /v1/models HTTP/1.1\r\nHost: 127.evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer_of(socket.read_until("")).status, 403);
}

TEST_F(Serve, BodiesOfUnknownLengthAndOtherMethodsAreRefused) {
  const std::string host = " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(server->port) + "\r\n";
  for (const auto& [text, status] : std::vector<std::pair<std::string, int>>{
           {"POST /v1/completions" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 411},
           {"POST /v1/completions" + host + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415},
           {"POST /" + host + "Content-Length: 2\r\n\r\n{}", 404},
           {"PUT /v1/completions" + host + "Content-Length: 2\r\n\r\n{}", 405}}) {
    const Socket socket(server->port);
    socket.send_text(text);
    EXPECT_EQ(answer_of(socket.read_until("")).status, status) << text;
  }
}

// A page of another site can send any text as the body of a POST.
TEST_F(Serve, ABodyIsNotTakenForTheNextRequest) {
  const std::string host = "Host: 127.0.0.1:" + std::to_string(server->port) + "\r\n";
  const std::string hidden = "GET /v1/models HTTP/1.1\r\n" + host + "\r\n";
  for (const std::string path : {"/v1/completions", "/"}) {
    const Socket socket(server->port);
    socket.send_text("POST " + path + " HTTP/1.1\r\n" + host + "Origin: http://evil.example\r\nContent-Length: " +
                     std::to_string(hidden.size()) + "\r\n\r\n" + hidden);
    const std::string all = socket.read_until("");
    EXPECT_THAT(answer_of(all).status, testing::AnyOf(403, 404));
    EXPECT_EQ(all.rfind("HTTP/1.1 "), 0u) << all;
  }
}

TEST(ServeAlone, AnApiKeyIsNeededAndABusyServerSaysSo) {
  const Served server({"--api-key", "secret", "--max-waiting", "1"});
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(server.ask("/v1/models").status, 401);
  EXPECT_EQ(server.ask("/v1/models", "", "Authorization: Bearer secre\r\n").status, 401);
  EXPECT_EQ(server.ask("/v1/completions", "{}", "Authorization: Bearer wrong!\r\n").parsed()["error"]["code"],
            "invalid_api_key");
  EXPECT_EQ(server.ask("/v1/models", "", key).status, 200);
  EXPECT_EQ(server.ask("/health").status, 200);
  std::vector<std::unique_ptr<Socket>> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<Socket>(server.port));
    clients.back()->send_text(server.request("/v1/completions", long_body(i), key));
  }
  int busy = 0;
  for (const auto& client : clients) {
    const Answer answer = answer_of(client->read_until(""));
    EXPECT_THAT(answer.status, testing::AnyOf(200, 429));
    if (answer.status != 429) continue;
    EXPECT_THAT(answer.head, HasSubstr("Retry-After: "));
    ++busy;
  }
  EXPECT_GE(busy, 1);
}

TEST(ServeAlone, AStageOfTextsHasNoChat) {
  const Served server({"stage=pt"});
  const Answer answer = server.ask("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.body, HasSubstr("stage: pt serves the model without a chat template"));
  EXPECT_EQ(server.ask("/v1/completions", greedy_body(0)).status, 200);
}

TEST(ServeAlone, AReplyThatFailsAtItsFirstTokenHasAStatusOfItsOwn) {
  const Served server({}, [](const std::filesystem::path& model) { spoil_token(model, 7); });
  const Answer answer = server.ask("/v1/completions", R"({"prompt": [5, 7, 9]})");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.parsed()["error"]["message"].get<std::string>(), HasSubstr("not numbers"));
  EXPECT_EQ(server.ask("/v1/completions", greedy_body(0)).status, 200);
}

// Returns the seconds until the server has answered a short request.
double seconds_of_a_reply(const Served& server) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(server.ask("/v1/completions", greedy_body(0)).parsed()["choices"][0]["text"],
            reference()[0]["base"]["text"]);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// A thread that waits for a slow client stays busy for 10 seconds or more.
TEST(ServeAlone, ClientsThatSendAByteAtATimeDelayNoOther) {
  const Served server;
  seconds_of_a_reply(server);  // not measured: the server compiles its program
  const double usual = seconds_of_a_reply(server);
  const std::string text = server.request("/v1/completions", greedy_body(1));
  std::vector<std::unique_ptr<Socket>> slow;
  for (int i = 0; i < 200; ++i) slow.push_back(std::make_unique<Socket>(server.port));
  std::atomic<bool> done = false;
  size_t sent = 0;
  std::thread sender([&] {
    for (; !done && sent + 1 < text.size(); ++sent) {
      for (const auto& client : slow) client->send_text(text.substr(sent, 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < 3; ++i) EXPECT_LT(seconds_of_a_reply(server), 1 + 10 * usual);
  done = true;
  sender.join();
  ASSERT_LT(sent + 1, text.size()) << "the slow clients had sent everything";
  slow[0]->send_text(text.substr(sent));  // the slow request itself is answered
  EXPECT_EQ(answer_of(slow[0]->read_until("")).parsed()["choices"][0]["text"], reference()[1]["base"]["text"]);
}

TEST(ServeAlone, ARequestChoosesTheBaseOrAnAdapterByName) {
  const std::string folder = reference_model("llama").string();
  const Served server({"--lora-modules", "mine=" + folder + "/adapter_final", "qv=" + folder + "/variants/qv"});
  const json list = server.ask("/v1/models").parsed()["data"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["id"], "tiny");
  EXPECT_EQ(list[0]["parent"], nullptr);
  EXPECT_EQ(list[1]["id"], "mine");
  EXPECT_EQ(list[1]["parent"], "tiny");
  EXPECT_EQ(list[1]["root"], folder + "/adapter_final");
  // Twelve clients at once, each with its own choice.
  std::vector<json> got(12);
  std::vector<std::thread> clients;
  const std::vector<json> choices = {json::object(), {{"model", "tiny"}}, {{"model", "mine"}}, {{"model", "qv"}}};
  for (size_t i = 0; i < got.size(); ++i)
    clients.emplace_back([&, i] {
      const Answer answer = server.ask("/v1/completions", greedy_body(static_cast<int>(i / 4) % 2, choices[i % 4]));
      if (answer.status == 200) got[i] = answer.parsed();
    });
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].contains("choices")) << i;
    EXPECT_EQ(got[i]["model"], choices[i % 4].value("model", "tiny"));
    if (i % 4 == 3) continue;  // there are no recorded replies of this adapter
    EXPECT_EQ(got[i]["choices"][0]["text"], reference()[i / 4 % 2][i % 4 == 2 ? "tuned" : "base"]["text"]) << i;
  }
  const Answer unknown = server.ask("/v1/completions", R"({"prompt": "a", "model": "other"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("use 'tiny' or 'mine' or 'qv'"));
}

TEST(ServeAlone, AdaptersThatCannotBeServedStopTheStart) {
  TempFolder folder;
  const std::string model = reference_model("llama").string();
  const Outcome dora = run_fettle(folder, {"serve", "model_name_or_path=" + model, "plugin=cpu", "--lora-modules",
                                           "a=" + model + "/variants/qv", "b=" + model + "/variants/dora"});
  EXPECT_EQ(dora.code, 2);
  EXPECT_THAT(dora.err, HasSubstr("variants/dora"));
  EXPECT_THAT(dora.err, HasSubstr("use_dora"));
  const Outcome late =
      run_fettle(folder, {"serve", "model_name_or_path=" + model, "--lora-modules", "a=x", "plugin=cpu"});
  EXPECT_EQ(late.code, 2);
  EXPECT_THAT(late.err, HasSubstr("write it before the flag"));
}

TEST(ServeAlone, SigtermWritesTheRepliesInWorkAndEnds) {
  Served server;
  const Socket socket(server.port);
  socket.send_text(server.request("/v1/completions", long_body(1)));
  std::string text = socket.read_until("data: ");
  server.send_signal(SIGTERM);
  text += socket.read_until("");
  EXPECT_THAT(text, HasSubstr("data: [DONE]"));
  const Outcome outcome = server.wait();
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ending"));
}

TEST(ServeAlone, ASignalBeforeItListensEndsItToo) {
  TempFolder folder;
  Running running(folder.path(), {"serve", "model_name_or_path=" + reference_model("llama").string(), "plugin=cpu",
                                  "--port", "0", "--rows", "4"});
  wait_until([&] { return running.ended() || std::filesystem::exists(folder / "stderr"); });
  for (int i = 0; i < 200 && !running.ended(); ++i) {  // signals arrive throughout the start
    running.send(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_TRUE(running.ended());
  running.wait();
}

// On a busy machine, the signal may come after the model is loaded. Then the server has told its address, and the test
// starts another one.
TEST(ServeAlone, ASignalWhileTheModelIsLoadedEndsTheProcess) {
  Outcome outcome;
  for (int attempt = 0; attempt < 5; ++attempt) {
    TempFolder folder;
    Running running(folder.path(), {"serve", "model_name_or_path=" + reference_model("llama").string(), "plugin=cpu",
                                    "--port", "0", "--rows", "4", "--verbose"});
    const auto said = [&] {
      return std::filesystem::exists(folder / "stderr") ? read_text(folder / "stderr") : std::string();
    };
    wait_until([&] { return running.ended() || said().find("opened the devices") != std::string::npos; });
    ASSERT_THAT(said(), HasSubstr("opened the devices"));
    running.send(SIGTERM);
    outcome = running.wait();
    if (outcome.err.find("/v1 (") == std::string::npos) break;
  }
  EXPECT_EQ(outcome.code, 128 + SIGTERM) << outcome.err;
  EXPECT_THAT(outcome.err, testing::Not(HasSubstr("/v1 (")));
}

TEST(ServeAlone, ATakenPortAndABadFlagAreNamed) {
  const Served server;
  TempFolder folder;
  const Outcome taken = run_fettle(folder, {"serve", "model_name_or_path=" + reference_model("llama").string(),
                                            "plugin=cpu", "--verbose", "--port", std::to_string(server.port)});
  EXPECT_EQ(taken.code, 2);
  EXPECT_THAT(taken.err, HasSubstr("choose another --host or --port"));
  EXPECT_THAT(taken.err, testing::Not(HasSubstr("loaded the weights"))) << "the model is loaded afterwards";
  const Outcome bad = run_fettle(folder, {"serve", "model_name_or_path=x", "--rows", "0"});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.err, HasSubstr("--rows"));
}

}  // namespace
}  // namespace fettle
