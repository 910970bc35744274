// Defines the commands. main() turns every error that reaches it into a message and an exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/environment.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/report_error.h"
#include "board/board.h"
#include "command_help.h"
#include "completion.h"
#include "config/flags.h"
#include "config/key_help.h"
#include "config/keys.h"
#include "config/nearest.h"
#include "config/recipe.h"
#include "doctor/doctor.h"
#include "eval/eval.h"
#include "export/export.h"
#include "generate/chat.h"
#include "generate/generate.h"
#include "inspect/data_command.h"
#include "inspect/download_command.h"
#include "inspect/upload_command.h"
#include "jinja/template.h"
#include "launch.h"
#include "plan/command.h"
#include "run/device_request.h"
#include "run/model_folders.h"
#include "runtime/client.h"
#include "runtime/vendors/plugin.h"
#include "serve/server.h"
#include "stages/stages.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_config.h"
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

int show_devices(const Recipe& recipe) {
  // This only lists devices, so no memory is reserved on them.
  const Client client(Plugin::load(recipe.plugin), {.device_count = static_cast<int>(recipe.device_count.value_or(0)),
                                                    .memory_fraction = device_request(recipe).memory_utilization,
                                                    .preallocate = false});
  fmt::print("plugin {} ({}), PJRT API {}.{}\n", client.plugin().name(), client.plugin().path().string(),
             client.plugin().api_major(), client.plugin().api_minor());
  for (const DeviceInfo& device : client.devices())
    fmt::print("{}  {}  {:.1f} GB  process {}\n", device.ordinal, device.kind, device.memory_bytes / 1e9,
               device.process_index);
  return 0;
}

struct TokenizeOptions {
  std::string model, file;
  bool jsonl = false, no_special = false, decode = false;
};

// Opens a file to read lines from. Refuses folders.
std::ifstream open_text(const std::string& file) {
  std::ifstream in(file);
  if (!in || std::filesystem::is_directory(file))
    throw UserError("{}: cannot be read; check that it is an existing file", file);
  return in;
}

// Reads a JSON array of ids. Throws UserError for other text, and for an id that the tokenizer does not have.
std::vector<int32_t> read_ids(const std::string& line, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const auto list = parse_json_or_discard<nlohmann::json>(line);
  if (!list.is_array()) throw UserError("wanted a JSON array of ids");
  for (const nlohmann::json& id : list) {
    const bool known = id.is_number_integer() && id >= 0 && id < tokenizer.vocab_size();
    if (!known)
      throw UserError("{} is not a token id; ids are integers from 0 to {}", id.dump(), tokenizer.vocab_size() - 1);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string read_json_text(const std::string& line) {
  const auto text = parse_json_or_discard<nlohmann::json>(line);
  if (!text.is_string()) throw UserError("wanted a JSON string");
  return text.get<std::string>();
}

int tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::open(local_tokenizer(options.model));
  std::ifstream in = open_text(options.file);
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    try {
      if (options.decode) {
        const std::string text = tokenizer.decode(read_ids(line, tokenizer), options.no_special);
        fmt::print("{}\n", options.jsonl ? nlohmann::json(text).dump() : text);
        continue;
      }
      const std::string text = options.jsonl ? read_json_text(line) : line;
      fmt::print("{}\n", nlohmann::json(tokenizer.encode(text, !options.no_special)).dump());
    } catch (const UserError& error) {
      throw UserError("{}:{}: {}", options.file, number, error.what());
    }
  }
  return 0;
}

std::string read_text(const std::string& file) {
  std::ifstream in = open_text(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct RenderOptions {
  std::string source, messages, name;
  bool jsonl = false;
};

// Renders templates of a Jinja file or of a model folder. Templates of a model folder get the model's special tokens,
// as in Transformers.
class Renderer {
 public:
  explicit Renderer(const RenderOptions& options) : options_(options) {
    const bool remote = !std::filesystem::exists(options.source) && options.source.find('/') != std::string::npos;
    const bool model = remote || std::filesystem::is_directory(options.source) || options.source.ends_with(".gguf");
    const std::string source = model ? local_tokenizer(options.source) : options.source;
    if (std::filesystem::is_directory(source)) {
      config_ = TokenizerConfig::read(source);
    } else {
      const std::string text = read_text(options.source);
      if (!is_valid_utf8(text)) throw UserError("{}: not valid UTF-8; wanted a Jinja template", options.source);
      config_.chat_templates["default"] = text;
    }
  }

  std::string render(std::string_view text, const std::string& where) {
    nlohmann::ordered_json context;
    try {
      context = parse_json<nlohmann::ordered_json>(text);
    } catch (const UserError& error) {
      throw UserError("{}: is not valid JSON: {}{}", where, error.what(),
                      options_.jsonl ? "" : "; for a file with one object per line, add --jsonl");
    }
    if (!context.is_object() || !context.contains("messages"))
      throw UserError("{}: wanted an object with \"messages\"", where);
    for (const auto& [key, token] : {std::pair{"bos_token", &config_.bos_token},
                                     {"eos_token", &config_.eos_token},
                                     {"pad_token", &config_.pad_token},
                                     {"unk_token", &config_.unk_token}})
      if (!token->empty() && !context.contains(key)) context[key] = *token;
    for (const char* key : {"tools", "documents"})
      if (!context.contains(key)) context[key] = nullptr;
    if (!context.contains("add_generation_prompt")) context["add_generation_prompt"] = false;
    return choose(!context["tools"].is_null()).render(context).text;
  }

 private:
  const jinja::Template& choose(bool for_tools) {
    const auto& all = config_.chat_templates;
    std::string name = for_tools && all.contains("tool_use") ? "tool_use" : "default";
    if (!options_.name.empty()) name = options_.name;
    const auto found = all.find(name);
    if (found == all.end()) {
      std::string names;
      for (const auto& [known, unused] : all) names += (names.empty() ? "" : ", ") + known;
      throw UserError("{}: it has no chat template '{}'; available: {}", options_.source, name,
                      names.empty() ? "none; give a Jinja file" : names);
    }
    const std::string shown = all.size() == 1 ? options_.source : fmt::format("{} ({})", options_.source, name);
    return parsed_.try_emplace(name, found->second, shown).first->second;
  }

  const RenderOptions& options_;
  TokenizerConfig config_;
  std::map<std::string, jinja::Template> parsed_;
};

int render(const RenderOptions& options) {
  Renderer renderer(options);
  if (!options.jsonl) {
    fmt::print("{}", renderer.render(read_text(options.messages), options.messages));
    return 0;
  }
  std::istringstream lines(read_text(options.messages));
  bool failed = false;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    try {
      const std::string text = renderer.render(line, fmt::format("{}:{}", options.messages, ++number));
      fmt::print("{}\n", nlohmann::json(text).dump());
    } catch (const UserError& error) {
      failed = true;
      fmt::print("{}\n", nlohmann::json({{"error", error.what()}}).dump());
    }
  }
  return static_cast<int>(failed ? ExitCode::kUser : ExitCode::kOk);
}

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

void add_help_keys(CLI::App& app) {
  const auto print_keys = [] {
    fmt::print("{}", recipe_reference_text(stage_key_text()));
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

int run(int argc, char** argv) {
  CLI::App app{"Fettle fine-tunes open language models on the accelerators you have.", "fettle"};
  app.footer(
      "Start with `fettle data RECIPE.yaml` and `fettle plan RECIPE.yaml`. `fettle COMMAND --help` shows a command's\n"
      "flags, examples and most important recipe keys; `fettle train --help-keys` lists all recipe keys.");
  app.set_version_flag("--version", "fettle " FETTLE_VERSION);
  add_help_keys(app);
  app.require_subcommand(1);
  bool verbose = false, quiet = false;
  app.add_flag("-v,--verbose", verbose, "print more on standard error");
  app.add_flag("-q,--quiet", quiet, "print only warnings and errors on standard error");
  std::function<int()> action;

  RecipeWords words;
  auto words_command = [&](const char* name, const char* about, std::function<int()> body) {
    CLI::App* command = app.add_subcommand(name, about);
    command->add_option("recipe", words.words, "a recipe file and key=value words that override its keys")
        ->option_text(" ");
    add_help(*command, true);
    command->callback([&, body] {
      if (words.words.empty() && words.flags.empty()) throw CLI::RequiredError("recipe");
      action = body;
    });
    return command;
  };
  auto recipe_command = [&](const char* name, const char* about, std::function<int(const Recipe&)> body) {
    return words_command(name, about, [&, body] { return body(words.read()); });
  };
  words_command("train", "fine-tune a model",
                [&] { return finetune([&] { return Request(words.read(), Command::kTrain); }); });
  LaunchOptions started;
  CLI::App* launch_command = app.add_subcommand("launch", "train on several hosts, which are reached over ssh");
  launch_command->add_option("words", started.words, "what `fettle train` gets: a recipe file and key=value words")
      ->option_text(" ");
  launch_command
      ->add_option("--hosts", started.hosts, "host names for ssh, separated by commas; process 0 runs on the first")
      ->required();
  launch_command->add_option("--per-host", started.per_host, "processes on each host (1)");
  launch_command->add_option("--shell", started.shell, "program that runs a command on a host (ssh)");
  launch_command->add_option("--address", started.address,
                             "name or address at which the other hosts reach the first host (its name for ssh)");
  launch_command->add_option("--port", started.port, "port on the first host at which the processes meet");
  add_help(*launch_command, true);
  launch_command->callback([&] {
    started.words.insert(started.words.end(), words.flags.begin(), words.flags.end());
    if (started.words.empty()) throw CLI::RequiredError("words");
    action = [&] { return launch(started); };
  });

  PlanOptions plan;
  std::string target;
  CLI::App* plan_command = words_command("plan", "compile the training step and show its memory and time", [&] {
    if (!target.empty()) words.set_target(target);
    plan.colour = isatty(STDOUT_FILENO) == 1;
    return run_plan(Request(words.read(), Command::kPlan), plan, std::cout);
  });
  plan_command->add_option("--target", target, "hardware to plan for, present or not: mi300x:8, a100-80:2x8, this");
  plan_command->add_option("--fit", plan.fit, "search for the largest batch or sequence length that fits")
      ->check(CLI::IsMember({"batch", "seq"}));
  plan_command->add_flag("--json", plan.json, "print JSON");
  plan_command->add_flag("--shards", plan.shards, "show which device holds which part of each array; compiles nothing")
      ->excludes("--fit");
  bool eval_json = false;
  CLI::App* eval_command = recipe_command(
      "eval", "measure a model and its base on data sets",
      [&](const Recipe& recipe) { return run_eval(Request(recipe, Command::kEval), eval_json, std::cout); });
  eval_command->add_flag("--json", eval_json, "print JSON");
  recipe_command("generate", "answer a prompt, lines of standard input, or rows of a data set",
                 [](const Recipe& recipe) {
                   run_generate(Request(recipe, Command::kGenerate));
                   return 0;
                 });
  recipe_command("chat", "talk to a model in the terminal",
                 [](const Recipe& recipe) { return run_chat(Request(recipe, Command::kChat)); });
  ServeOptions serve{.api_key = environment("FETTLE_API_KEY")};
  CLI::App* serve_command =
      recipe_command("serve", "answer requests in OpenAI's protocol over HTTP", [&](const Recipe& recipe) {
        for (const std::string& entry : serve.lora_modules)
          if (find_key(entry.substr(0, entry.find('='))) != nullptr)
            throw UserError("--lora-modules: '{}' sets a recipe key; write it before the flag", entry);
        return run_serve(Request(recipe, Command::kServe), serve);
      });
  serve_command->add_option("--host", serve.host,
                            "address to listen at (127.0.0.1); 0.0.0.0 means all addresses of this machine");
  serve_command->add_option("--port", serve.port, "port to listen at (8080); 0 means any free port")
      ->check(CLI::Range(0, 65535));
  serve_command->add_option("--api-key", serve.api_key, "key that requests must send; also FETTLE_API_KEY");
  serve_command->add_option("--name", serve.name, "name for the recipe's model in requests and answers");
  serve_command->add_option("--lora-modules", serve.lora_modules,
                            "NAME=PATH ...: adapters of the model; a request names the adapter that it uses");
  serve_command->add_option("--rows", serve.rows, "replies written at the same time (16)")->check(CLI::Range(1, 1024));
  serve_command->add_option("--max-waiting", serve.max_waiting, "requests that may wait for their turn (64)")
      ->check(CLI::Range(0, 4096));
  BoardOptions board{.token = environment("FETTLE_BOARD_TOKEN")};
  CLI::App* board_command =
      app.add_subcommand("board", "show the runs of a folder in the browser, start and stop runs");
  board_command->add_option("folder", board.folder, "folder whose runs are shown")->required()->option_text(" ");
  board_command->add_option("--host", board.host,
                            "address to listen at (127.0.0.1; 0.0.0.0: all addresses of this machine)");
  board_command->add_option("--port", board.port, "port to listen at (8090; 0: any free one)")
      ->check(CLI::Range(0, 65535));
  board_command->add_flag("--read-only", board.read_only, "nothing can be started, stopped or written");
  add_help(*board_command, false);
  board_command->callback([&] { action = [&] { return run_board(board); }; });
  recipe_command("export", "merge adapters into the base model, write one folder and check it",
                 [](const Recipe& recipe) {
                   fmt::print("{}\n", format_export(run_export(Request(recipe, Command::kExport))));
                   return 0;
                 });

  recipe_command("convert", "translate another tool's recipe into Fettle's keys, and print it",
                 [](const Recipe& recipe) {
                   fmt::print("{}", to_yaml(recipe));
                   return 0;
                 });

  DataOptions report;
  CLI::App* data_command =
      recipe_command("data", "show the rows and tokens that a run would train on", [&](const Recipe& recipe) {
        report.colour = isatty(STDOUT_FILENO) == 1;
        return run_data(Request(recipe, Command::kData), report, std::cout);
      });
  data_command->add_flag("--json", report.json, "print JSON");
  data_command->add_option("--rows", report.rows, "rows to show (3)")->check([](const std::string& given) {
    return given.starts_with('-') ? fmt::format("{} is not a number of rows", given) : "";
  });

  DownloadOptions wanted;
  CLI::App* download_command =
      app.add_subcommand("download", "fetch a model, an adapter or a data set from the hub, and print its folder");
  download_command
      ->add_option("name", wanted.name, "ORG/NAME, ORG/NAME@REVISION, or a recipe, to fetch its models and data sets")
      ->required();
  download_command->add_option("--revision", wanted.revision, "branch, tag or commit");
  download_command->add_flag("--dataset", wanted.dataset, "the name is a data set, not a model");
  download_command->add_option("--subset", wanted.subset, "subset of a data set");
  download_command->add_option("--split", wanted.split,
                               "split of a data set; without --subset and --split, all rows are fetched");
  download_command->add_flag("--no-weights", wanted.without_weights,
                             "fetch only config and tokenizer, which are enough for `fettle plan`");
  download_command->add_option("--include", wanted.include, "fetch only the files that match these patterns");
  download_command->add_flag("--all", wanted.all, "fetch every file of the repository");
  download_command->add_flag("--modelscope", wanted.modelscope, "fetch from ModelScope");
  add_help(*download_command, false);
  download_command->callback([&] {
    action = [&] {
      if (!std::filesystem::is_regular_file(wanted.name)) return run_download(wanted, std::cout);
      fetch_recipe(read_recipe(wanted.name, {}), std::cout);
      return 0;
    };
  });

  UploadOptions upload;
  CLI::App* upload_command = app.add_subcommand("upload", "send an adapter or a model to Hugging Face's hub");
  upload_command->add_option("folder", upload.folder, "the output_dir or export_dir to send")->required();
  upload_command->add_option("name", upload.repository, "ORG/NAME or ORG/NAME@BRANCH; a missing repository is created")
      ->required();
  upload_command->add_flag("--public", upload.is_public, "everyone may see a new repository (otherwise it is private)");
  upload_command->add_option("--message", upload.message, "message of the commit");
  add_help(*upload_command, false);
  upload_command->callback([&] { action = [&] { return run_upload(upload, std::cout); }; });

  CLI::App* devices = app.add_subcommand("devices", "list the devices of a plugin");
  devices->add_option("overrides", words.words, "plugin=..., device_count=...")->option_text(" ");
  add_help(*devices, true);
  devices->callback([&] { action = [&] { return show_devices(read_recipe({}, words.all())); }; });

  DoctorOptions doctor{.version = FETTLE_VERSION};
  CLI::App* doctor_command = app.add_subcommand("doctor", "check and measure this machine, its driver and its devices");
  doctor_command->add_option("overrides", words.words, "plugin=..., device_count=..., output_dir=...")
      ->option_text(" ");
  doctor_command->add_flag("--json", doctor.json, "print JSON");
  add_help(*doctor_command, true);
  doctor_command->callback([&] {
    action = [&] {
      const Recipe recipe = read_recipe({}, words.all());
      doctor.output_dir = recipe.output_dir;
      return run_doctor(device_request(recipe), doctor, std::cout);
    };
  });

  TokenizeOptions text;
  CLI::App* tokenize_command = app.add_subcommand("tokenize", "print the token ids of each line of a file");
  tokenize_command->add_option("model", text.model, "model folder, its name on the hub, or a GGUF file")->required();
  tokenize_command->add_option("file", text.file, "text file")->required();
  tokenize_command->add_flag("--jsonl", text.jsonl, "each line is a JSON string (with --decode: print JSON strings)");
  tokenize_command->add_flag("--no-special", text.no_special,
                             "add no bos or eos (with --decode: leave special tokens out)");
  tokenize_command->add_flag("--decode", text.decode, "each line is a JSON array of ids; print the text");
  add_help(*tokenize_command, false);
  tokenize_command->callback([&] { action = [&] { return tokenize(text); }; });

  RenderOptions rendered;
  CLI::App* render_command = app.add_subcommand("render", "print a conversation as a chat template renders it");
  render_command
      ->add_option("template", rendered.source, "a model folder, its name on the hub, a GGUF file or a Jinja file")
      ->required();
  render_command
      ->add_option("messages", rendered.messages,
                   "JSON: {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, ...}")
      ->required();
  render_command->add_option("--name", rendered.name, "name of one of the model's templates (tool_use, rag, ...)");
  render_command->add_flag("--jsonl", rendered.jsonl,
                           "each line of the file is such a JSON object; print one JSON string per line");
  add_help(*render_command, false);
  render_command->callback([&] { action = [&] { return render(rendered); }; });

  if (argc > 1 && argv[1] == std::string_view("complete")) return complete(app, argc, argv);
  check_command(app, argc, argv);
  std::vector<std::string> arguments = take_flags(app, argc, argv, words.flags);
  std::ranges::reverse(arguments);  // CLI11 takes the arguments in reverse order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    const std::vector<CLI::App*> named = app.get_subcommands();
    throw UserError("{}; see `fettle{} --help`", error.what(), named.empty() ? "" : " " + named.front()->get_name());
  }
  set_log_level(verbose ? LogLevel::kDebug : quiet ? LogLevel::kQuiet : LogLevel::kInfo);
  return action();
}

}  // namespace
}  // namespace fettle

int main(int argc, char** argv) {
  using namespace fettle;
  try {
    return run(argc, argv);
  } catch (const std::exception&) {
    return report_error();
  }
}
