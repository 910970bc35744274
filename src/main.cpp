// Defines the commands. main() turns every error that reaches it into a message and an exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <sstream>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/own_program.h"
#include "base/files/standard_output.h"
#include "base/files/standard_streams.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/report_error.h"
#include "board/board.h"
#include "command_help.h"
#include "completion.h"
#include "config/flags.h"
#include "config/key_help.h"
#include "config/keys.h"
#include "config/known_keys.h"
#include "config/nearest.h"
#include "config/recipe.h"
#include "doctor/doctor.h"
#include "eval/eval.h"
#include "export/export.h"
#include "generate/chat.h"
#include "generate/generate.h"
#include "inspect/data_command.h"
#include "inspect/devices_command.h"
#include "inspect/download_command.h"
#include "inspect/render_command.h"
#include "inspect/tokenize_command.h"
#include "inspect/upload_command.h"
#include "launch.h"
#include "plan/command.h"
#include "report/canvas.h"
#include "run/device_request.h"
#include "run/model_folders.h"
#include "serve/server.h"
#include "stages/stages.h"
#include "train/finetune.h"

namespace fettle {
namespace {

// The recipe and the key=value words that most commands take.
struct RecipeWords {
  std::vector<std::string> words;
  std::vector<std::string> flags;  // key=value words that the user wrote as flags (--bf16)

  std::vector<std::string> all() const {
    std::vector<std::string> out = words;
    out.insert(out.end(), flags.begin(), flags.end());
    return out;
  }

  // Adds the value of the flag --target. Throws UserError if the words set the key `target` to another value.
  void set_target(const std::string& target) {
    const std::string key = "target=";
    for (const std::string& word : all())
      if (word.starts_with(key) && word != key + target)
        throw UserError("--target {} and {} are given together; keep one of them", target, word);
    flags.push_back(key + target);
  }

  Recipe read() const {
    std::vector<std::string> overrides = all();
    std::filesystem::path file;
    if (!overrides.empty() && overrides[0].find('=') == std::string::npos) {
      file = overrides[0];
      overrides.erase(overrides.begin());
    }
    return read_recipe(file, overrides);
  }
};

// Returns the index of the command in `argv`: the index of the first word that is not a flag. Flags before the command
// take no values. Returns argc when there is no such word.
int place_of_command(int argc, char** argv) {
  int at = 1;
  while (at < argc && argv[at][0] == '-') ++at;
  return at;
}

// Throws UserError, which suggests the nearest command, when the first word is not a command. CLI11 makes no
// suggestions.
void check_command(const CLI::App& app, int argc, char** argv) {
  const int at = place_of_command(argc, argv);
  if (at == argc) return;
  std::vector<std::string_view> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  const std::string_view asked = argv[at];
  if (std::ranges::find(names, asked) != names.end()) return;
  const auto near = nearest(asked, names);
  throw UserError("'{}' is not a command{}; commands are {}; `fettle --help` describes them", asked,
                  near ? fmt::format(" (did you mean '{}'?)", *near) : "", fmt::join(names, ", "));
}

// Returns the program's words with `help` and `help COMMAND` in the form of flags: `--help` and `COMMAND --help`.
std::vector<char*> with_help_flag(int argc, char** argv) {
  static char flag[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  const int at = place_of_command(argc, argv);
  if (at == argc || argv[at] != std::string_view("help")) return words;
  words.erase(words.begin() + at);
  words.insert(words.begin() + std::min(at + 1, argc - 1), flag);
  return words;
}

// Returns the message for a command line that CLI11 refuses. `command` is the command's name, or "".
std::string refusal(const CLI::ParseError& error, const std::string& command) {
  std::string what = error.what();
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string end = " is required";
    if (command.empty()) return "no command is given";
    if (what.ends_with(end)) what.resize(what.size() - end.size());
    return fmt::format("{} is missing; an example is `{}`", what, first_example(command));
  }
  const std::string start = "Could not convert: ", equals = " = ";
  const size_t value = what.find(equals);
  if (!what.starts_with(start) || value == std::string::npos) return what;
  return fmt::format("{}: '{}' is not a whole number", what.substr(start.size(), value - start.size()),
                     what.substr(value + equals.size()));
}

// Returns whether the command takes recipe keys.
bool reads_recipe(const CLI::App& command) {
  return command.get_option_no_throw("--help-keys") != nullptr;
}

// Moves the flags of other tools (`--learning_rate 1e-4`) from the program's arguments to `words`, as key=value words.
// Returns the other arguments of the program.
std::vector<std::string> take_flags(const CLI::App& app, int argc, char** argv, std::vector<std::string>& words) {
  const std::vector<std::string> all(argv + 1, argv + argc);
  const auto at = place_of_command(argc, argv) - 1;
  const auto asked = [&](const CLI::App* command) { return at < std::ssize(all) && command->get_name() == all[at]; };
  const std::vector<const CLI::App*> found = app.get_subcommands(asked);
  if (found.empty() || !reads_recipe(*found[0])) return all;
  std::vector<std::string> own;
  for (const CLI::App* level : {&app, found[0]})
    for (const CLI::Option* option : level->get_options())
      for (const std::string& name : option->get_lnames()) own.push_back("--" + name);
  SplitFlags split = split_flags({all.begin() + at + 1, all.end()}, own);
  words = std::move(split.words);
  split.others.insert(split.others.begin(), all.begin(), all.begin() + at + 1);
  return split.others;
}

// Throws UserError for a word such as port=8081 if the command has the flag --port, and there is no such recipe key.
void refuse_flag_words(const CLI::App& command, const std::vector<std::string>& words) {
  const std::vector<std::string_view> known = known_names();
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    if (equals == std::string::npos || std::ranges::find(known, name) != known.end()) continue;
    std::ranges::replace(name, '_', '-');
    const CLI::Option* flag = command.get_option_no_throw("--" + name);
    if (flag == nullptr) continue;
    const bool takes_value = flag->get_items_expected_max() > 0;
    throw UserError("unknown key '{}'; did you mean the flag '--{}{}'?", word.substr(0, equals), name,
                    takes_value ? " VALUE" : "");
  }
}

void add_help_keys(CLI::App& app) {
  const auto print_keys = [] {
    std::cout << recipe_reference_text(stage_key_text());
    throw CLI::Success();
  };
  app.add_flag_callback("--help-keys", print_keys, "list all recipe keys");
}

// Adds to `--help` the text after the command's flags. Adds the flag `--help-keys` if the command reads a recipe.
void add_help(CLI::App& command, bool reads_recipe) {
  command.footer(command_help(command.get_name()));
  if (!reads_recipe) return;
  add_help_keys(command);
}

// Returns the words of a command for shell completion.
CommandWords words_of(const CLI::App& app) {
  CommandWords out{app.get_name(), app.get_description(), reads_recipe(app)};
  for (const CLI::Option* option : app.get_options()) {
    OptionWords row{.about = option->get_description(), .takes_value = option->get_items_expected_max() > 0};
    for (const std::string& name : option->get_snames()) row.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) row.names.push_back("--" + name);
    const std::string type = option->get_type_name();  // "TEXT:{batch,seq}"
    std::istringstream values(type.substr(std::min(type.find('{') + 1, type.size())));
    if (type.ends_with('}'))
      for (std::string value; std::getline(values, value, ',');) row.values.push_back(value.substr(0, value.find('}')));
    if (!row.names.empty()) out.options.push_back(row);
  }
  return out;
}

// Runs `fettle complete WORDS...`, which the completion scripts of shells call. `--help` does not list this command.
int complete(const CLI::App& app, int argc, char** argv) {
  std::vector<CommandWords> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) commands.push_back(words_of(*command));
  print_completion(words_of(app), commands, {argv + 2, argv + argc}, std::cout);
  return 0;
}

// The program's command line. An add_ function adds one command. The callbacks of the command own its options.
struct CommandLine {
  CLI::App app{"Fettle fine-tunes open language models on the accelerators you have.", "fettle"};
  RecipeWords words;
  std::function<int()> action;  // does what the parsed command line asks for
};

// Adds a command that takes a recipe and recipe keys. It runs `body`, which reads line.words.
CLI::App* add_words_command(CommandLine& line, const char* name, const char* about, std::function<int()> body) {
  CLI::App* command = line.app.add_subcommand(name, about);
  command->add_option("recipe", line.words.words, "a recipe file and key=value words that override its keys")
      ->option_text(" ");
  add_help(*command, true);
  command->callback([&line, body = std::move(body)] {
    if (line.words.words.empty() && line.words.flags.empty()) throw CLI::RequiredError("recipe");
    line.action = body;
  });
  return command;
}

// Adds a command that takes a recipe and recipe keys. It runs `body` with the recipe.
CLI::App* add_recipe_command(CommandLine& line, const char* name, const char* about,
                             std::function<int(const Recipe&)> body) {
  return add_words_command(line, name, about, [&line, body = std::move(body)] { return body(line.words.read()); });
}

void add_train(CommandLine& line) {
  add_words_command(line, "train", "fine-tune a model",
                    [&line] { return finetune([&] { return Request(line.words.read(), Command::kTrain); }); });
}

void add_launch(CommandLine& line) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* command = line.app.add_subcommand("launch", "train on several hosts, which are reached over ssh");
  command->add_option("words", options->words, "what `fettle train` gets: a recipe file and key=value words")
      ->option_text(" ");
  command->add_option("--hosts", options->hosts, "host names for ssh, separated by commas; process 0 runs on the first")
      ->required();
  command->add_option("--per-host", options->per_host, "processes on each host (1)");
  command->add_option("--shell", options->shell, "program that runs a command on a host (ssh)");
  command->add_option("--address", options->address,
                      "name or address at which the other hosts reach the first host (its name for ssh)");
  command->add_option("--port", options->port, "port on the first host at which the processes meet")
      ->check(CLI::Range(1, 65535));
  add_help(*command, true);
  command->callback([&line, options] {
    options->words.insert(options->words.end(), line.words.flags.begin(), line.words.flags.end());
    if (options->words.empty()) throw CLI::RequiredError("words");
    line.action = [options] { return launch(*options); };
  });
}

void add_plan(CommandLine& line) {
  auto options = std::make_shared<PlanOptions>();
  auto target = std::make_shared<std::string>();
  CLI::App* command = add_words_command(
      line, "plan", "compile the training step and show its memory and time", [&line, options, target] {
        if (!target->empty()) line.words.set_target(*target);
        options->colour = isatty(STDOUT_FILENO) == 1;
        return run_plan(Request(line.words.read(), Command::kPlan), *options, std::cout);
      });
  command->add_option("--target", *target, "hardware to plan for, present or not: mi300x:8, a100-80:2x8, this");
  command->add_option("--fit", options->fit, "search for the largest batch or sequence length that fits")
      ->check(CLI::IsMember({"batch", "seq"}));
  command->add_flag("--json", options->json, "print JSON");
  command->add_flag("--shards", options->shards, "show which device holds which part of each array; compiles nothing")
      ->excludes("--fit");
}

void add_eval(CommandLine& line) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = add_recipe_command(
      line, "eval", "measure a model and its base on data sets",
      [json](const Recipe& recipe) { return run_eval(Request(recipe, Command::kEval), *json, std::cout); });
  command->add_flag("--json", *json, "print JSON");
}

void add_generate_and_chat(CommandLine& line) {
  add_recipe_command(line, "generate", "answer a prompt, lines of standard input, or rows of a data set",
                     [](const Recipe& recipe) {
                       run_generate(Request(recipe, Command::kGenerate));
                       return 0;
                     });
  add_recipe_command(line, "chat", "talk to a model in the terminal",
                     [](const Recipe& recipe) { return run_chat(Request(recipe, Command::kChat)); });
}

void add_serve(CommandLine& line) {
  auto options = std::make_shared<ServeOptions>();
  options->api_key = environment("FETTLE_API_KEY");
  CLI::App* command = add_recipe_command(
      line, "serve", "answer requests in OpenAI's protocol over HTTP", [options](const Recipe& recipe) {
        for (const std::string& entry : options->lora_modules)
          if (find_key(entry.substr(0, entry.find('='))) != nullptr)
            throw UserError("--lora-modules: '{}' sets a recipe key; write it before the flag", entry);
        return run_serve(Request(recipe, Command::kServe), *options);
      });
  command->add_option("--host", options->host,
                      "address to listen at (127.0.0.1); 0.0.0.0 means all addresses of this machine");
  command->add_option("--port", options->port, "port to listen at (8080); 0 means any free port")
      ->check(CLI::Range(0, 65535));
  command->add_option("--api-key", options->api_key, "key that requests must send; also FETTLE_API_KEY");
  command->add_option("--name", options->name, "name for the recipe's model in requests and answers");
  command->add_option("--lora-modules", options->lora_modules,
                      "NAME=PATH ...: adapters of the model; a request names the adapter that it uses");
  command->add_option("--rows", options->rows, "replies written at the same time (16)")->check(CLI::Range(1, 1024));
  command->add_option("--max-waiting", options->max_waiting, "requests that may wait for their turn (64)")
      ->check(CLI::Range(0, 4096));
}

void add_board(CommandLine& line) {
  auto options = std::make_shared<BoardOptions>();
  options->token = environment("FETTLE_BOARD_TOKEN");
  CLI::App* command = line.app.add_subcommand("board", "show the runs of a folder in the browser, start and stop runs");
  command->add_option("folder", options->folder, "folder whose runs are shown")->required()->option_text(" ");
  command->add_option("--host", options->host,
                      "address to listen at (127.0.0.1; 0.0.0.0: all addresses of this machine)");
  command->add_option("--port", options->port, "port to listen at (8090; 0: any free one)")
      ->check(CLI::Range(0, 65535));
  command->add_flag("--read-only", options->read_only, "nothing can be started, stopped or written");
  add_help(*command, false);
  command->callback([&line, options] { line.action = [options] { return run_board(*options); }; });
}

void add_export_and_convert(CommandLine& line) {
  add_recipe_command(line, "export", "merge adapters into the base model, write one folder and check it",
                     [](const Recipe& recipe) {
                       std::cout << format_export(run_export(Request(recipe, Command::kExport))) << "\n";
                       return 0;
                     });
  add_recipe_command(line, "convert", "translate another tool's recipe into Fettle's keys, and print it",
                     [](const Recipe& recipe) {
                       std::cout << to_yaml(recipe);
                       return 0;
                     });
}

void add_data(CommandLine& line) {
  auto options = std::make_shared<DataOptions>();
  CLI::App* command = add_recipe_command(line, "data", "show the rows and tokens that a run would train on",
                                         [options](const Recipe& recipe) {
                                           options->colour = isatty(STDOUT_FILENO) == 1;
                                           return run_data(Request(recipe, Command::kData), *options, std::cout);
                                         });
  command->add_flag("--json", options->json, "print JSON");
  command->add_option("--rows", options->rows, "rows to show (3)")->check([](const std::string& given) {
    return given.starts_with('-') ? fmt::format("{} is not a number of rows", given) : "";
  });
}

void add_download(CommandLine& line) {
  auto options = std::make_shared<DownloadOptions>();
  CLI::App* command =
      line.app.add_subcommand("download", "fetch a model, an adapter or a data set from the hub, and print its folder");
  command
      ->add_option("name", options->name,
                   "ORG/NAME, ORG/NAME@REVISION, ORG/NAME:Q4_K_M, or a recipe: its models and data sets")
      ->required();
  command->add_option("--revision", options->revision, "branch, tag or commit");
  command->add_flag("--dataset", options->dataset, "the name is a data set, not a model");
  command->add_option("--subset", options->subset, "subset of a data set");
  command->add_option("--split", options->split,
                      "split of a data set; without --subset and --split, all rows are fetched");
  command->add_flag("--no-weights", options->without_weights,
                    "fetch only config and tokenizer, which are enough for `fettle plan`");
  command->add_option("--include", options->include, "fetch only the files that match these patterns");
  command->add_flag("--all", options->all, "fetch every file of the repository");
  command->add_flag("--modelscope", options->modelscope, "fetch from ModelScope");
  add_help(*command, false);
  command->callback([&line, options] {
    line.action = [options] {
      if (!std::filesystem::is_regular_file(options->name)) return run_download(*options, std::cout);
      check_recipe_download(*options);
      const std::vector<std::string> overrides(options->modelscope ? 1 : 0, "use_modelscope=true");
      fetch_recipe(read_recipe(options->name, overrides), !options->without_weights, std::cout);
      return 0;
    };
  });
}

void add_upload(CommandLine& line) {
  auto options = std::make_shared<UploadOptions>();
  CLI::App* command = line.app.add_subcommand("upload", "send an adapter or a model to Hugging Face's hub");
  command->add_option("folder", options->folder, "the output_dir or export_dir to send")->required();
  command->add_option("name", options->repository, "ORG/NAME or ORG/NAME@BRANCH; a missing repository is created")
      ->required();
  command->add_flag("--public", options->is_public, "everyone may see a new repository (otherwise it is private)");
  command->add_option("--message", options->message, "message of the commit");
  add_help(*command, false);
  command->callback([&line, options] { line.action = [options] { return run_upload(*options, std::cout); }; });
}

void add_devices(CommandLine& line) {
  CLI::App* command = line.app.add_subcommand("devices", "list the devices of a plugin");
  command->add_option("overrides", line.words.words, "plugin=..., device_count=...")->option_text(" ");
  add_help(*command, true);
  command->callback([&line] {
    line.action = [&line] {
      const Recipe recipe = read_recipe({}, line.words.all());
      return run_devices({.plugin = recipe.plugin,
                          .count = static_cast<int>(recipe.device_count.value_or(0)),
                          .memory_utilization = device_request(recipe).memory_utilization},
                         std::cout);
    };
  });
}

void add_doctor(CommandLine& line) {
  auto options = std::make_shared<DoctorOptions>();
  options->version = FETTLE_VERSION;
  CLI::App* command = line.app.add_subcommand("doctor", "check and measure this machine, its driver and its devices");
  command->add_option("overrides", line.words.words, "plugin=..., device_count=..., output_dir=...")->option_text(" ");
  command->add_flag("--json", options->json, "print JSON");
  add_help(*command, true);
  command->callback([&line, options] {
    line.action = [&line, options] {
      const Recipe recipe = read_recipe({}, line.words.all());
      options->output_dir = recipe.output_dir;
      return run_doctor(device_request(recipe), *options, std::cout);
    };
  });
}

void add_tokenize(CommandLine& line) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = line.app.add_subcommand("tokenize", "print the token ids of each line of a file");
  command->add_option("model", options->model, "model folder, its name on the hub, or a GGUF file")->required();
  command->add_option("file", options->file, "text file")->required();
  command->add_flag("--jsonl", options->jsonl, "each line is a JSON string (with --decode: print JSON strings)");
  command->add_flag("--no-special", options->no_special, "add no bos or eos (with --decode: leave special tokens out)");
  command->add_flag("--decode", options->decode, "each line is a JSON array of ids; print the text");
  add_help(*command, false);
  command->callback([&line, options] { line.action = [options] { return run_tokenize(*options, std::cout); }; });
}

void add_render(CommandLine& line) {
  auto options = std::make_shared<RenderOptions>();
  CLI::App* command = line.app.add_subcommand("render", "print a conversation as a chat template renders it");
  command->add_option("template", options->source, "a model folder, its name on the hub, a GGUF file or a Jinja file")
      ->required();
  command
      ->add_option("messages", options->messages,
                   "JSON: {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, ...}")
      ->required();
  command->add_option("--name", options->name, "name of one of the model's templates (tool_use, rag, ...)");
  command->add_flag("--jsonl", options->jsonl,
                    "each line of the file is such a JSON object; print one JSON string per line");
  add_help(*command, false);
  command->callback([&line, options] { line.action = [options] { return run_render(*options, std::cout); }; });
}

int run(int argc, char** argv) {
  CommandLine line;
  CLI::App& app = line.app;
  app.footer(
      "Start with `fettle data RECIPE.yaml` and `fettle plan RECIPE.yaml`. `fettle COMMAND --help` shows a command's\n"
      "flags, examples and most important recipe keys; `fettle train --help-keys` lists all recipe keys.");
  app.set_version_flag("--version", "fettle " FETTLE_VERSION);
  add_help_keys(app);
  app.require_subcommand(1);
  bool verbose = false, quiet = false;
  const auto add_log_flags = [&](CLI::App& level) {
    level.add_flag("-v,--verbose", verbose, "print more on standard error");
    level.add_flag("-q,--quiet", quiet, "print only warnings and errors on standard error");
  };
  add_log_flags(app);

  // `--help` lists the commands in this order.
  add_train(line);
  add_launch(line);
  add_plan(line);
  add_eval(line);
  add_generate_and_chat(line);
  add_serve(line);
  add_board(line);
  add_export_and_convert(line);
  add_data(line);
  add_download(line);
  add_upload(line);
  add_devices(line);
  add_doctor(line);
  add_tokenize(line);
  add_render(line);
  for (CLI::App* command : app.get_subcommands(nullptr)) add_log_flags(*command);

  if (argc > 1 && argv[1] == std::string_view("complete")) return complete(app, argc, argv);
  std::vector<char*> words = with_help_flag(argc, argv);
  argc = static_cast<int>(words.size());
  argv = words.data();
  check_command(app, argc, argv);
  std::vector<std::string> arguments = take_flags(app, argc, argv, line.words.flags);
  std::ranges::reverse(arguments);  // CLI11 takes the arguments in reverse order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::vector<CLI::App*> named = app.get_subcommands();
    const std::string command = named.empty() ? "" : named.front()->get_name();
    throw UserError("{}; see `fettle{} --help`", refusal(error, command), command.empty() ? "" : " " + command);
  }
  refuse_flag_words(*app.get_subcommands().front(), line.words.words);
  set_log_level(verbose ? LogLevel::kDebug : quiet ? LogLevel::kQuiet : LogLevel::kInfo);
  return line.action();
}

}  // namespace
}  // namespace fettle

int main(int argc, char** argv) {
  using namespace fettle;
  hold_standard_streams();
  end_on_signals();
  use_own_fonts(own_program());
  try {
    const int code = run(argc, argv);
    check_written(std::cout);
    return code;
  } catch (const std::exception&) {
    return report_error();
  }
}
