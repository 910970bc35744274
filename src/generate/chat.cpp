#include "generate/chat.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/files/standard_output.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "generate/replies/shown_reply.h"
#include "generate/session.h"

namespace fettle {
namespace {

constexpr const char* kCommands = "/clear forgets the conversation, /system TEXT sets the system message, /exit ends";

bool is_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' &&
         std::all_of(line.begin() + 1, line.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

class Chat {
 public:
  Chat(Session& session, std::string system, std::ostream& out, std::ostream& remarks)
      : session_(session), system_(std::move(system)), out_(out), remarks_(remarks) {}

  // Handles one line. Returns false at /exit, or when a signal asks to end.
  bool take(const std::string& line) {
    const std::string text(trimmed(line));
    if (text.empty()) return true;
    if (text == "/exit" || text == "/quit") return false;
    if (text == "/clear") {
      history_.clear();
      remarks_ << "(a new conversation starts)\n";
    } else if (text == "/system" || text.starts_with("/system ")) {
      system_ = trimmed(std::string_view(text).substr(std::string("/system").size()));
      remarks_ << (system_.empty() ? "(no system message)\n" : "(system message set)\n");
    } else if (is_command(text)) {
      remarks_ << "(unknown command " << text << ": " << kCommands << ")\n";
    } else {
      ask(line);
    }
    return ended_by_ == 0;
  }

  int ended_by() const { return ended_by_; }

 private:
  std::vector<int32_t> prompt() const {
    std::vector<Message> messages = history_;
    if (!system_.empty()) messages.insert(messages.begin(), {.role = "system", .content = system_});
    return session_.prompt({std::move(messages)});
  }

  void ask(const std::string& line) {
    history_.push_back({.role = "user", .content = line, .extra_json = ""});
    std::vector<int32_t> ids;
    try {
      ids = prompt();
    } catch (const UserError& error) {
      if (history_.size() == 1 && system_.empty()) throw;  // the template refuses every conversation
      history_.pop_back();
      const char* remedy = system_.empty() ? "enter /clear" : "enter /clear, or /system to remove the system message";
      remarks_ << "(" << error.what() << "; " << remedy << ")\n";
      return;
    }
    if (static_cast<int64_t>(ids.size()) > session_.max_length()) {
      history_.pop_back();
      remarks_ << "(the conversation would have " << ids.size() << " tokens, but the model takes at most "
               << session_.max_length() << "; enter /clear, or ask something shorter)\n";
      return;
    }
    const InterruptScope interrupts;
    ShownReply shown(session_.reply_form(), session_.tokenizer(), ids);
    const Reply reply = session_.reply(ids, 0, [&](const std::string& text) {
      out_ << shown.push(text) << std::flush;
      return out_.good() && InterruptScope::signal() == 0;
    });
    out_ << shown.finish() << std::endl;
    check_written(out_);
    remember(shown.parts(), reply.text);
    remark(reply.end);
    if (InterruptScope::signal() == SIGTERM) ended_by_ = SIGTERM;
  }

  // Adds the reply to the conversation. `text` is the whole reply, as one text.
  void remember(const ReplyPart& reply, const std::string& text) {
    Message message{.role = "assistant", .content = reply.content, .extra_json = ""};
    if (!reply.reasoning.empty())
      message.extra_json = nlohmann::json{{"reasoning_content", reply.reasoning}}.dump(
          -1, ' ', false, nlohmann::json::error_handler_t::replace);
    history_.push_back(std::move(message));
    if (is_blank(reply.content) && !is_accepted()) history_.back() = {.role = "assistant", .content = text};
  }

  // Returns false if the template refuses the conversation, as some do if a thought was cut off before its answer.
  bool is_accepted() const {
    try {
      prompt();
    } catch (const UserError&) {
      return false;
    }
    return true;
  }

  void remark(ReplyEnd end) {
    switch (end) {
      case ReplyEnd::kStopToken: return;
      case ReplyEnd::kCaller: remarks_ << "(stopped)\n"; return;
      case ReplyEnd::kMaxNewTokens: remarks_ << "(stopped at max_new_tokens)\n"; return;
      case ReplyEnd::kMaxPositions:
        remarks_ << "(stopped: the model takes at most " << session_.max_length() << " tokens; enter /clear)\n";
    }
  }

  Session& session_;
  std::string system_;
  std::ostream &out_, &remarks_;
  std::vector<Message> history_;  // the conversation without the system message
  int ended_by_ = 0;
};

}  // namespace

int run_chat(const Request& request, std::istream& in, bool in_is_terminal, std::ostream& out, std::ostream& remarks) {
  // The Chat adds the system message, so that /system can remove it.
  Session session(request, Session::Template::kRequired, Session::SystemMessage::kByCaller);
  session.load();
  Chat chat(session, request.data().default_system, out, remarks);
  if (in_is_terminal) remarks << "(" << kCommands << "; Ctrl-C stops a reply)\n";
  auto sign = [&] {
    if (in_is_terminal) remarks << "\n> " << std::flush;
  };
  sign();
  for (std::string line; std::getline(in, line); sign()) {
    if (line.ends_with('\r')) line.pop_back();
    if (!chat.take(line)) break;
  }
  if (in_is_terminal && in.eof()) remarks << "\n";
  return chat.ended_by() == 0 ? 0 : 128 + chat.ended_by();
}

int run_chat(const Request& request) {
  return run_chat(request, std::cin, isatty(STDIN_FILENO) == 1, std::cout, std::cerr);
}

}  // namespace fettle
