#include "serve/server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "data/row_readers.h"
#include "http/caller.h"
#include "http/listener.h"
#include "serve/answers.h"
#include "serve/page.h"
#include "serve/requests.h"
#include "serve/scheduler.h"
#include "serve/served_models.h"
#include "stages/stage.h"

namespace fettle {
namespace {

using std::chrono::milliseconds;

constexpr size_t kLargestBody = 8 << 20;
constexpr int64_t kSlowClients = 256;
constexpr const char *kChatPath = "/v1/chat/completions", *kTextPath = "/v1/completions";
constexpr const char* kRetryAfter = "5";  // seconds after which a refused client asks again
constexpr milliseconds kLook{100};        // how often a waiting thread checks whether its client is still connected
// How long an answer that is not streamed waits for first tokens before its status is sent.
constexpr milliseconds kFirstToken{10000};

// Each connection has its own thread. There are threads for all replies that are being written, for all waiting
// requests, and for kSlowClients clients that send or read slowly. A waiting thread costs only a few pages of memory.
HttpLimits limits(const ServeOptions& options) {
  return {.threads = static_cast<size_t>(options.rows + options.max_waiting + kSlowClients),
          .largest_body = kLargestBody};
}

void answer_error(httplib::Response& response, const RequestError& error) {
  response.status = error.status;
  if (error.status == 429 || error.status == 503) response.set_header("Retry-After", kRetryAfter);
  response.set_content(error.json(), "application/json");
}

// One of the replies that a client gets.
struct DeliveredReply {
  std::shared_ptr<PendingReply> reply;
  std::unique_ptr<ReplyReader> reader;  // null: the whole text is content
  bool first = true;                    // the first reply to its prompt
  AnswerChoice so_far = {};             // without a stream: the parts so far
  int64_t tokens = 0;                   // tokens of the reply so far
  bool ended = false;

  // Waits for news and returns the next part of the reply. `news` also has the chances of its tokens.
  ReplyPart next(PendingReply::News& news, milliseconds patience) {
    news = reply->wait(patience);
    tokens = news.reply_tokens;
    ended = news.ended;
    if (!reader) return {.content = news.text, .reasoning = "", .calls = {}};
    ReplyPart part = reader->push(news.text);
    if (news.ended && news.error.empty()) part.add(reader->finish());
    return part;
  }
};

// An answer that is being sent to a client. It has one reply, or several if the request has several
// prompts or sets `n`.
struct Delivery {
  std::vector<DeliveredReply> replies;
  AnswerWriter writer;
  bool stream;
  std::atomic<int>& open;

  Delivery(std::vector<DeliveredReply> given, AnswerWriter form, bool streamed, std::atomic<int>& count)
      : replies(std::move(given)), writer(std::move(form)), stream(streamed), open(count) {
    ++open;
  }
  ~Delivery() {
    for (const DeliveredReply& one : replies) one.reply->cancel();  // has no effect on a reply that has ended
    --open;
  }

  // Waits until each reply has its first token, but at most for kFirstToken. Returns why a reply failed, or "".
  std::string early_error() const {
    const auto end = std::chrono::steady_clock::now() + kFirstToken;
    for (const DeliveredReply& one : replies)
      if (const std::string error = one.reply->wait_for_begin(end); !error.empty()) return error;
    return "";
  }

  AnswerUsage usage() const {
    AnswerUsage out;
    for (const DeliveredReply& one : replies) {
      if (one.first) out.prompt_tokens += std::ssize(one.reply->job.prompt);
      out.reply_tokens += one.tokens;
    }
    return out;
  }

  // Writes the whole body. Returns false when the client has gone or a reply failed; the connection is then closed.
  bool write(httplib::DataSink& sink) {
    auto send = [&](const std::string& text) {
      return text.empty() || (sink.is_writable() && sink.write(text.data(), text.size()));
    };
    for (size_t i = 0; stream && i < replies.size(); ++i)
      if (!send(writer.begin(i))) return false;
    while (std::ranges::any_of(replies, [](const DeliveredReply& one) { return !one.ended; })) {
      milliseconds patience = kLook;
      for (size_t i = 0; i < replies.size(); ++i) {
        DeliveredReply& one = replies[i];
        if (one.ended) continue;
        PendingReply::News news;
        ReplyPart part = one.next(news, std::exchange(patience, milliseconds(0)));
        if (!sink.is_writable()) return false;
        if (!stream) {
          one.so_far.reply.add(std::move(part));
          std::ranges::move(news.chances, std::back_inserter(one.so_far.chances));
          one.so_far.finish_reason = news.finish_reason;
        } else if ((!part.empty() || !news.chances.empty()) && !send(writer.piece(part, news.chances, i))) {
          return false;
        }
        if (!news.ended) continue;
        if (!news.error.empty()) {
          if (stream) send("data: " + RequestError(500, news.error).json() + "\n\n");
          return false;
        }
        if (stream && !send(writer.end(news.finish_reason, i))) return false;
      }
    }
    std::vector<AnswerChoice> choices;
    for (DeliveredReply& one : replies) choices.push_back(std::move(one.so_far));
    if (!send(stream ? writer.done(usage()) : writer.whole(choices, usage()))) return false;
    sink.done();
    return true;
  }
};

class CompletionServer {
 public:
  CompletionServer(Session& session, Scheduler& scheduler, const ServedModels& models, const ServeOptions& options,
                   HttpListener& listener)
      : session_(session),
        scheduler_(scheduler),
        models_(models),
        options_(options),
        listener_(listener),
        http_(listener_.server()) {
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
          response.status == 404 ? fmt::format("{} {} is not known; see docs/serve.md", request.method, request.path)
          : response.status == 413 && is_form(request)
              ? "a body of this size needs the header 'Content-Type: application/json'"
          : response.status == 413 ? fmt::format("the body is larger than {} bytes; send a shorter one", kLargestBody)
                                   : fmt::format("the request cannot be read (HTTP status {})", response.status);
      answer_error(response, RequestError(response.status, text));
    });
    http_.Get("/", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(kChatPage.data(), kChatPage.size(), "text/html; charset=utf-8");
    });
    http_.Get("/health", [this](const httplib::Request&, httplib::Response& response) { tell_health(response); });
    http_.Get("/v1/models", [this](const httplib::Request&, httplib::Response& response) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const ServedModel& model : models_.models) list.push_back(model_json(model));
      response.set_content(nlohmann::ordered_json{{"object", "list"}, {"data", list}}.dump(), "application/json");
    });
    http_.Get("/v1/models/(.+)", [this](const httplib::Request& request, httplib::Response& response) {
      try {
        response.set_content(model_json(model_of(request.matches[1])).dump(), "application/json");
      } catch (const RequestError& error) {
        answer_error(response, error);
      }
    });
    http_.Post(kChatPath, [this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response, read_chat_request);
    });
    http_.Post(kTextPath, [this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response, read_text_request);
    });
  }

  // Answers requests until a signal asks the server to end.
  void run() {
    listener_.run([this] {
      scheduler_.refuse_new();
      info("ending: {} replies are still being written", open_.load());
      while (open_ > 0) std::this_thread::sleep_for(milliseconds(20));
    });
  }

 private:
  // Returns whether the body claims to be a web form, as curl's -d does by default. The library httplib takes only
  // small forms.
  static bool is_form(const httplib::Request& request) {
    return request.get_header_value("Content-Type").starts_with("application/x-www-form-urlencoded");
  }

  static void check_form(const httplib::Request& request) {
    if (request.method == "GET" || request.method == "HEAD") return;
    if (request.method != "POST")
      throw RequestError(405, fmt::format("{} is not supported; see docs/serve.md", request.method));
    if (request.path != kChatPath && request.path != kTextPath)
      throw RequestError(404, fmt::format("POST {} is not known; see docs/serve.md", request.path));
    if (const std::optional<HttpRefusal> refusal = refuse_body(request))
      throw RequestError(refusal->status, refusal->text);
  }

  void check_caller(const httplib::Request& request) const {
    if (const std::optional<HttpRefusal> refusal = refuse_caller(options_.host, request))
      throw RequestError(refusal->status, refusal->text);
    if (options_.api_key.empty() || !request.path.starts_with("/v1/")) return;
    if (!has_key(request, options_.api_key))
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

  nlohmann::ordered_json model_json(const ServedModel& model) const {
    const std::string base = models_.base();
    return {{"id", model.name},
            {"object", "model"},
            {"created", started_},
            {"owned_by", "fettle"},
            {"root", model.root},
            {"parent", model.is_adapter ? nlohmann::ordered_json(base) : nlohmann::ordered_json()},
            {"max_model_len", session_.max_length()}};
  }

  const ServedModel& model_of(const std::string& name) const {
    if (const ServedModel* model = models_.find(name)) return *model;
    std::string names;
    for (const ServedModel& model : models_.models)
      names += fmt::format("{}'{}'", names.empty() ? "" : " or ", model.name);
    throw RequestError(404, fmt::format("the model '{}' is not on this server; use {}", name, names), "model",
                       "model_not_found");
  }

  // Returns how the reply is divided into content, reasoning and calls.
  ReplyForm form_of(const CompletionRequest& request) const {
    if (!request.chat || !session_.has_template()) return {};
    const bool tools = !request.conversation.tools_json.empty();
    return reply_form_of(session_.template_source(tools), tools);
  }

  // Returns the token ids of the request's prompts. Throws UserError when the chat template refuses the messages.
  std::vector<std::vector<int32_t>> prompts_of(CompletionRequest& request) const {
    if (request.chat) return {session_.prompt(request.conversation)};
    std::vector<std::vector<int32_t>> out;
    for (TextPrompt& one : request.prompts)
      out.push_back(!one.ids.empty() ? std::move(one.ids) : session_.tokenizer().encode(one.text, true));
    return out;
  }

  // Throws RequestError if the model cannot take the prompt.
  void check_prompt(const std::vector<int32_t>& ids, const char* field) const {
    try {
      session_.check_prompt(ids, field);
    } catch (const UserError& error) {
      const bool too_long = std::ssize(ids) > session_.max_length();
      throw RequestError(400, error.what(), field, too_long ? "context_length_exceeded" : "");
    }
    for (const int32_t id : ids)
      if (id >= session_.vocab_size())
        throw RequestError(
            400, fmt::format("token id {} is not in the vocabulary of {} tokens", id, session_.vocab_size()), field);
  }

  std::string why_no_chat() const {
    const Stage& stage = models_.request.stage();
    if (!row_reader(stage.rows).conversations)
      return fmt::format(
          "stage: {} serves the model without a chat template; use /v1/completions, or start with "
          "stage=sft",
          stage.name);
    return "the model has no chat template; use /v1/completions, or start with template=NAME";
  }

  // Returns a job for each reply of the request: the replies to the first prompt, then those to the second one, ...
  std::vector<ReplyJob> jobs_of(CompletionRequest& request, const ServedModel& model, const ReplyForm& form) {
    ReplyJob job{.options = session_.options(0),
                 .stop = request.stop,
                 .top_logprobs = request.top_logprobs,
                 .adapter = model.adapter};
    job.options.shown_ids = mark_ids(form, session_.tokenizer());
    const char* field = request.chat ? "messages" : "prompt";
    if (request.chat && !session_.has_template()) throw RequestError(400, why_no_chat());
    std::vector<std::vector<int32_t>> prompts;
    try {
      prompts = prompts_of(request);
    } catch (const UserError& error) {
      throw RequestError(400, error.what(), field);
    }
    std::random_device random;
    std::vector<ReplyJob> jobs;
    for (std::vector<int32_t>& prompt : prompts) {
      check_prompt(prompt, field);
      job.prompt = std::move(prompt);
      for (int64_t i = 0; i < request.replies; ++i) {
        ReplyJob& one = jobs.emplace_back(job);
        one.options.sampling.seed = uint64_t{random()} << 32 | random();
        one.options = request.options(std::move(one.options), static_cast<uint64_t>(i));
      }
    }
    return jobs;
  }

  void answer(const httplib::Request& request, httplib::Response& response,
              CompletionRequest (*read)(std::string_view body)) {
    try {
      check_caller(request);
      CompletionRequest asked = read(request.body);
      const ServedModel& model = model_of(asked.model);
      const ReplyForm form = form_of(asked);
      std::vector<ReplyJob> jobs = jobs_of(asked, model, form);
      const std::string prompt_end = text_at_end(session_.tokenizer(), jobs.front().prompt);
      std::vector<DeliveredReply> replies(jobs.size());
      for (size_t i = 0; i < replies.size(); ++i) replies[i].first = i % static_cast<size_t>(asked.replies) == 0;
      for (DeliveredReply& one : replies)
        if (!form.plain()) one.reader = make_reply_reader(form, asked.conversation.tools_json, prompt_end);
      std::vector<std::shared_ptr<PendingReply>> submitted = scheduler_.submit(std::move(jobs));
      for (size_t i = 0; i < replies.size(); ++i) replies[i].reply = std::move(submitted[i]);
      AnswerWriter writer(asked.chat, model.name, asked.top_logprobs.has_value(), asked.include_usage,
                          form.calls != nullptr && form.calls->short_ids, replies.size());
      auto delivery = std::make_shared<Delivery>(std::move(replies), std::move(writer), asked.stream, open_);
      // Most failures show at the first token. Until then, the answer can still get another status.
      if (!asked.stream)
        if (const std::string error = delivery->early_error(); !error.empty()) throw RequestError(500, error);
      // An answer that is not streamed also has a content provider, so that write() notices when the client
      // disconnects.
      response.set_header("Cache-Control", "no-cache");
      const auto write = [delivery](size_t, httplib::DataSink& sink) {
        try {
          return delivery->write(sink);
        } catch (const std::exception& error) {
          warn("a reply could not be written: {}", error.what());
          return false;
        }
      };
      const char* type = asked.stream ? "text/event-stream" : "application/json";
      // HTTP/1.0 has no chunks. There, the answer ends with the connection.
      if (request.version == "HTTP/1.0")
        response.set_content_provider(type, write);
      else
        response.set_chunked_content_provider(type, write);
    } catch (const RequestError& error) {
      answer_error(response, error);
    } catch (const std::exception& error) {
      warn("a request failed: {}", error.what());
      answer_error(response, RequestError(500, error.what()));
    }
  }

  Session& session_;
  Scheduler& scheduler_;
  const ServedModels& models_;
  const ServeOptions& options_;
  const int64_t started_ = std::time(nullptr);
  std::atomic<int> open_ = 0;  // answers that are being written
  HttpListener& listener_;
  httplib::Server& http_;
};

}  // namespace

int run_serve(const Request& request, const ServeOptions& options) {
  const ServedModels models = served_models(request, options.lora_modules, options.name);
  Session session(models.request, Session::Template::kIfThere, Session::SystemMessage::kDefault, models.adapters);
  HttpListener listener(options.host, options.port, limits(options));
  const int port = listener.bind();  // before the model is loaded, because loading may take minutes
  Scheduler scheduler(session, {.rows = options.rows, .max_waiting = options.max_waiting});
  const InterruptScope interrupts;  // a signal while the model is loaded ends the process
  CompletionServer server(session, scheduler, models, options, listener);
  if (options.api_key.empty() && !is_loopback(options.host))
    warn("every machine that reaches {} port {} can use the model; set --api-key or FETTLE_API_KEY", options.host,
         port);
  std::string names;
  for (const ServedModel& model : models.models) names += (names.empty() ? "" : ", ") + model.name;
  const std::string address = fmt::format("http://{}:{}", url_host(options.host), port);
  info("serving {} at {}/v1 (chat page: {}/); Ctrl-C ends", names, address, address);
  server.run();
  return 0;
}

}  // namespace fettle
