#include "serve/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "serve/answers.h"
#include "serve/page.h"
#include "serve/requests.h"
#include "serve/scheduler.h"

namespace fettle {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLargestBody = 8 << 20;
constexpr const char *kChatPath = "/v1/chat/completions", *kTextPath = "/v1/completions";
constexpr milliseconds kLook{100};  // how often a waiting thread checks whether its client is still connected

// Returns whether the host is "localhost" or an address of this machine alone (127.x.x.x or ::1). Other names are not,
// even if they begin with "127.": "127.example.com" may be any machine.
bool is_loopback(const std::string& host) {
  in_addr address{};
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &address) == 1;
  return host == "localhost" || host == "::1" || (is_ipv4 && ntohl(address.s_addr) >> 24 == 127);
}

// Returns the host of a Host header or of an origin, without the port.
std::string host_of(std::string text) {
  if (const size_t scheme = text.find("://"); scheme != std::string::npos) text.erase(0, scheme + 3);
  if (text.starts_with('[')) return text.substr(1, text.find(']') - 1);
  return text.substr(0, text.find(':'));
}

// Compares keys. It takes the same time for every wrong key of the same length.
bool same_key(const std::string& given, const std::string& wanted) {
  unsigned char differs = given.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < given.size() && i < wanted.size(); ++i)
    differs |= static_cast<unsigned char>(given[i] ^ wanted[i]);
  return differs == 0;
}

void answer_error(httplib::Response& response, const RequestError& error) {
  response.status = error.status;
  response.set_content(error.json(), "application/json");
}

// A reply that is being sent to a client.
struct Delivery {
  std::shared_ptr<PendingReply> reply;
  AnswerWriter writer;
  bool stream;
  std::atomic<int>& open;

  Delivery(std::shared_ptr<PendingReply> given, AnswerWriter form, bool streamed, std::atomic<int>& count)
      : reply(std::move(given)), writer(std::move(form)), stream(streamed), open(count) {
    ++open;
  }
  ~Delivery() {
    reply->cancel();  // has no effect on a reply that has ended
    --open;
  }

  // Writes the whole body. Returns false when the client has gone or the reply failed; the connection is then closed.
  bool write(httplib::DataSink& sink) {
    auto send = [&](const std::string& text) {
      return text.empty() || (sink.is_writable() && sink.write(text.data(), text.size()));
    };
    if (stream && !send(writer.begin())) return false;
    std::string text;
    std::vector<TokenChance> chances;
    for (;;) {
      PendingReply::News news = reply->wait(kLook);
      if (!sink.is_writable()) return false;
      const AnswerUsage usage{std::ssize(reply->job.prompt), news.reply_tokens};
      if (!stream) {
        text += news.text;
        chances.insert(chances.end(), news.chances.begin(), news.chances.end());
      } else if ((!news.text.empty() || !news.chances.empty()) && !send(writer.piece(news.text, news.chances))) {
        return false;
      }
      if (!news.ended) continue;
      if (!news.error.empty()) {
        if (stream) send("data: " + RequestError(500, news.error).json() + "\n\n");
        return false;
      }
      if (!send(stream ? writer.end(news.finish_reason, usage)
                       : writer.whole(text, chances, news.finish_reason, usage)))
        return false;
      sink.done();
      return true;
    }
  }
};

class CompletionServer {
 public:
  CompletionServer(Session& session, Scheduler& scheduler, const ServeOptions& options)
      : session_(session), scheduler_(scheduler), options_(options) {
    set_limits();
    http_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      try {
        check_form(request);
        if (request.method != "POST") check_caller(request);
        return httplib::Server::HandlerResponse::Unhandled;
      } catch (const RequestError& error) {
        answer_error(response, error);
        return httplib::Server::HandlerResponse::Handled;
      }
    });
    http_.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty()) return;
      const std::string text =
          response.status == 404   ? fmt::format("{} {} is not known; see docs/serve.md", request.method, request.path)
          : response.status == 413 ? fmt::format("the body is larger than {} bytes; shorten it", kLargestBody)
                                   : fmt::format("the request cannot be read (HTTP status {})", response.status);
      answer_error(response, RequestError(response.status, text));
    });
    http_.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(kChatPage.data(), kChatPage.size(), "text/html; charset=utf-8");
    });
    http_.Get("/health", [this](const httplib::Request&, httplib::Response& response) { tell_health(response); });
    http_.Get("/v1/models", [this](const httplib::Request&, httplib::Response& response) {
      response.set_content(nlohmann::ordered_json{{"object", "list"}, {"data", {model_json()}}}.dump(),
                           "application/json");
    });
    http_.Post(kChatPath, [this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response, read_chat_request);
    });
    http_.Post(kTextPath, [this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response, read_text_request);
    });
  }

  // Returns the port. Throws UserError.
  int bind() {
    const int port = options_.port == 0                                 ? http_.bind_to_any_port(options_.host)
                     : http_.bind_to_port(options_.host, options_.port) ? options_.port
                                                                        : -1;
    if (port <= 0)
      throw UserError("cannot listen at {} port {}: {}; choose another --host or --port", options_.host, options_.port,
                      std::strerror(errno));
    ::listen(socket_, 256);  // the library's own queue holds only five clients
    return port;
  }

  // Answers requests until a signal asks the server to end.
  void run() {
    if (InterruptScope::signal() != 0) return;
    std::atomic<bool> ended = false;
    std::thread listener([&] {
      http_.listen_after_bind();
      ended = true;
    });
    while (!ended && InterruptScope::signal() == 0) std::this_thread::sleep_for(milliseconds(50));
    const bool failed = ended;
    scheduler_.refuse_new();
    info("ending: {} replies are still being written", open_.load());
    while (open_ > 0) std::this_thread::sleep_for(milliseconds(20));
    while (!ended && !http_.is_running()) std::this_thread::sleep_for(milliseconds(1));  // before, stop() has no effect
    http_.stop();
    listener.join();
    if (failed)
      throw UserError("the server can no longer accept connections at {} port {}; start it again", options_.host,
                      options_.port);
  }

 private:
  void set_limits() {
    // Each connection has a thread, so every reply that is written or waits needs a thread.
    const auto threads = static_cast<size_t>(options_.rows + options_.max_waiting + 32);
    http_.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
    http_.set_socket_options([this](auto socket) {  // without SO_REUSEPORT, which lets two servers share a port
      socket_ = static_cast<int>(socket);
      const int yes = 1;
      setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    http_.set_payload_max_length(kLargestBody);
    http_.set_tcp_nodelay(true);
    http_.set_read_timeout(10);
    http_.set_write_timeout(30);
    // The body of a refused request is not read. If the connection stayed open, the body would be taken for the next
    // request.
    http_.set_keep_alive_max_count(1);
  }

  // Refuses requests whose body could exceed the limit: the library checks the limit only with Content-Length.
  static void check_form(const httplib::Request& request) {
    if (request.method == "GET" || request.method == "HEAD") return;
    if (request.method != "POST")
      throw RequestError(405, fmt::format("{} is not supported; see docs/serve.md", request.method));
    if (request.path != kChatPath && request.path != kTextPath)
      throw RequestError(404, fmt::format("POST {} is not known; see docs/serve.md", request.path));
    if (!request.has_header("Content-Length") || request.has_header("Transfer-Encoding"))
      throw RequestError(411, "the body's length is unknown; send it with Content-Length");
    if (request.has_header("Content-Encoding")) throw RequestError(415, "the body is compressed; send it as it is");
  }

  // A page of another site must not use a server on this machine, even if the site's name resolves to this machine.
  void check_caller(const httplib::Request& request) const {
    const std::string host = host_of(request.get_header_value("Host")), origin = request.get_header_value("Origin");
    if (is_loopback(options_.host) && !is_loopback(host))
      throw RequestError(403, fmt::format("the Host header is '{}'; use 127.0.0.1 or localhost", host));
    if (!origin.empty() && origin != "http://" + request.get_header_value("Host"))
      throw RequestError(403, fmt::format("web pages of {} may not use this server", origin));
    if (options_.api_key.empty() || !request.path.starts_with("/v1/")) return;
    const std::string given = request.get_header_value("Authorization");
    if (!same_key(given, "Bearer " + options_.api_key))
      throw RequestError(401, "the API key is missing or wrong; send the header 'Authorization: Bearer KEY'", "",
                         "invalid_api_key");
  }

  void tell_health(httplib::Response& response) const {
    const Scheduler::Figures now = scheduler_.figures();
    if (now.ending) response.status = 503;
    response.set_content(
        nlohmann::ordered_json{
            {"status", now.ending ? "ending" : "ok"}, {"writing", now.writing}, {"waiting", now.waiting}}
            .dump(),
        "application/json");
  }

  nlohmann::ordered_json model_json() const {
    return {{"id", options_.name},
            {"object", "model"},
            {"created", started_},
            {"owned_by", "fettle"},
            {"max_model_len", session_.max_length()}};
  }

  ReplyJob job_of(CompletionRequest& request) {
    if (!request.model.empty() && request.model != options_.name)
      throw RequestError(404,
                         fmt::format("the model '{}' is not on this server; use '{}'", request.model, options_.name),
                         "model", "model_not_found");
    ReplyJob job{.options = session_.options(0), .stop = request.stop, .top_logprobs = request.top_logprobs};
    std::random_device random;
    job.options.sampling.seed = uint64_t{random()} << 32 | random();
    job.options = request.options(std::move(job.options));
    const char* field = request.chat ? "messages" : "prompt";
    if (request.chat && !session_.has_template())
      throw RequestError(400, "the model has no chat template; use /v1/completions, or start with template=NAME");
    try {
      job.prompt = request.chat                  ? session_.prompt(std::move(request.messages), request.tools_json)
                   : !request.prompt_ids.empty() ? std::move(request.prompt_ids)
                                                 : session_.tokenizer().encode(request.prompt, true);
      session_.check_prompt(job.prompt, field);
    } catch (const UserError& error) {
      const bool too_long = std::ssize(job.prompt) > session_.max_length();
      throw RequestError(400, error.what(), field, too_long ? "context_length_exceeded" : "");
    }
    for (const int32_t id : job.prompt)
      if (id >= session_.vocab_size())
        throw RequestError(400, fmt::format("token id {} is not in the vocabulary of {}", id, session_.vocab_size()),
                           field);
    return job;
  }

  void answer(const httplib::Request& request, httplib::Response& response,
              CompletionRequest (*read)(std::string_view body)) {
    try {
      check_caller(request);
      CompletionRequest asked = read(request.body);
      auto delivery = std::make_shared<Delivery>(
          scheduler_.submit(job_of(asked)),
          AnswerWriter(asked.chat, options_.name, asked.top_logprobs.has_value(), asked.include_usage), asked.stream,
          open_);
      // An answer that is not streamed also has a content provider, because it notices when the client disconnects.
      response.set_header("Cache-Control", "no-cache");
      response.set_chunked_content_provider(
          asked.stream ? "text/event-stream" : "application/json",
          [delivery](size_t, httplib::DataSink& sink) { return delivery->write(sink); });
    } catch (const RequestError& error) {
      answer_error(response, error);
    } catch (const std::exception& error) {
      warn("a request failed: {}", error.what());
      answer_error(response, RequestError(500, error.what()));
    }
  }

  Session& session_;
  Scheduler& scheduler_;
  const ServeOptions& options_;
  const int64_t started_ = std::time(nullptr);
  std::atomic<int> open_ = 0;  // answers that are being written
  int socket_ = -1;
  httplib::Server http_;
};

// Returns the model's name for clients: the last part ("c" of "a/b/c") of the last adapter's name, or of the model's
// name if there is no adapter.
std::string name_of_model(const Request& request) {
  std::string name = request.model_title();
  while (name.ends_with('/')) name.pop_back();
  return name.substr(name.find_last_of("/ ") + 1);
}

}  // namespace

int run_serve(const Request& request, const ServeOptions& given) {
  ServeOptions options = given;
  if (options.name.empty()) options.name = name_of_model(request);
  Session session(request, Session::Template::kIfThere);
  const InterruptScope interrupts;
  Scheduler scheduler(session, {.rows = options.rows, .max_waiting = options.max_waiting});
  CompletionServer server(session, scheduler, options);
  const int port = server.bind();
  if (options.api_key.empty() && !is_loopback(options.host))
    warn("every machine that reaches {} port {} can use the model; set --api-key or FETTLE_API_KEY", options.host,
         port);
  info("serving {} at http://{}:{}/v1 (chat page: http://{}:{}/); Ctrl-C ends", options.name, options.host, port,
       options.host, port);
  server.run();
  return 0;
}

}  // namespace fettle
