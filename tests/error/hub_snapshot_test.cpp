// Tests the messages when a hub refuses a request, sends wrong data or cannot be reached.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/interrupt.h"
#include "environment.h"
#include "hub/http.h"
#include "hub/hub_api.h"
#include "hub/snapshot.h"
#include "hub_server.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class HubRefusals : public testing::Test {
 protected:
  HubRefusals() {
    hub.put("models/org/small-model/config.json", "{}");
    hub.put("models/org/small-model/model.safetensors", std::string(100000, 'w'));
    hub.put("models/org/small-model@v1/config.json", "{}");
  }
  std::string open_error(const std::string& name, const std::string& token = "") {
    return user_error([&] {
      HubSettings settings = hub.settings();
      settings.token = token;
      Snapshot::open(settings, *read_repo_name(RepoKind::kModel, name));
    });
  }
  std::string fetch_error(const std::string& token = "") {
    return user_error([&] {
      HubSettings settings = hub.settings();
      settings.token = token;
      Snapshot::open(settings, *read_repo_name(RepoKind::kModel, "org/small-model")).fetch({"model.safetensors"});
    });
  }
  // Checks that the cache has no model.safetensors, and no blob that counts as complete.
  void expect_no_weights() {
    for (const auto& entry : fs::recursive_directory_iterator(hub.cache())) {
      EXPECT_NE(entry.path().filename(), "model.safetensors");
      if (entry.is_regular_file() && entry.path().parent_path().filename() == "blobs") {
        EXPECT_EQ(entry.path().extension(), ".incomplete") << entry.path();
      }
    }
  }
  HubServer hub;
};

TEST_F(HubRefusals, NoSuchModel) {
  EXPECT_THAT(open_error("org/smal-model"),
              AllOf(HasSubstr("'org/smal-model' is neither a folder on this machine nor a model of http://127.0.0.1"),
                    HasSubstr("(did you mean org/small-model?)"),
                    HasSubstr("If the repository is private, make a token at"), HasSubstr("set HF_TOKEN")));
  EXPECT_THAT(open_error("nobody/nothing", "good"), HasSubstr("your token must belong to someone who may read it"));
  hub.put("models/org/small-model/.private", "");
  EXPECT_THAT(open_error("org/small-model", "other"), HasSubstr("neither a folder on this machine nor a model"));
}

TEST_F(HubRefusals, Gated) {
  hub.put("models/org/small-model/.gated", "");
  EXPECT_THAT(fetch_error(), AllOf(HasSubstr("org/small-model is gated"), HasSubstr("Accept them at " + hub.endpoint()),
                                   HasSubstr("/settings/tokens and set HF_TOKEN")));
  EXPECT_THAT(fetch_error("other"),
              AllOf(HasSubstr("the account of your token has no access to it yet"), Not(HasSubstr("other "))));
}

TEST_F(HubRefusals, WrongToken) {
  EXPECT_THAT(open_error("org/small-model", "hf_secret"),
              AllOf(HasSubstr("does not accept your token"), Not(HasSubstr("hf_secret"))));
  HubSettings settings;
  EXPECT_THAT(user_error([] { check_token("a\nb", "HF_TOKEN"); }), HasSubstr("HF_TOKEN: the token has a character"));
}

TEST_F(HubRefusals, NoSuchRevision) {
  EXPECT_THAT(open_error("org/small-model@v2"),
              AllOf(HasSubstr("org/small-model has no revision 'v2'"), HasSubstr("its branches are main, v1")));
  for (const char* wrong : {"a@../../x", "a@/etc", "a@", "a@x..y", "a@-x", "a@x//y", "a@x y"})
    EXPECT_THAT(open_error(wrong), HasSubstr("is not a revision")) << wrong;
}

TEST_F(HubRefusals, NoNetwork) {
  HubSettings settings = hub.settings();
  settings.endpoint = "http://no-such-host.invalid";
  const std::string said = user_error([&] { Snapshot::open(settings, {RepoKind::kModel, "org/small-model", ""}); });
  EXPECT_THAT(
      said,
      AllOf(HasSubstr("org/small-model is not on this machine and cannot be downloaded: the host no-such-host.invalid "
                      "is not known"),
            HasSubstr("Run `fettle download org/small-model`"),
            HasSubstr("copy models--org--small-model from there to " + hub.cache().string()),
            HasSubstr("or replace the repository's name by the path of a local folder")));
  EXPECT_THAT(said, Not(HasSubstr("\n")));
  settings.offline = true;
  EXPECT_THAT(
      user_error([&] {
        Snapshot::open(settings, {RepoKind::kDataset, "org/rows", "v1"});
      }),
      AllOf(HasSubstr("org/rows is not on this machine: it is not in"), HasSubstr("HF_HUB_OFFLINE forbids downloads"),
            HasSubstr("fettle download org/rows --dataset --revision v1`")));
  settings.hub = Hub::kModelScope;
  EXPECT_THAT(user_error([&] {
                Snapshot::open(settings, {RepoKind::kModel, "org/small-model", ""});
              }),
              AllOf(HasSubstr("fettle download org/small-model --modelscope`"),
                    HasSubstr("copy org--small-model from there to " + (hub.cache() / "models").string())));
}

TEST_F(HubRefusals, WrongContent) {
  hub.set_faults({{{"kind", "wrong"}, {"match", "model.safetensors"}, {"times", 9}}});
  EXPECT_THAT(
      fetch_error(),
      AllOf(HasSubstr("model.safetensors: the content that 127.0.0.1 sends does not have the checksum in the listing"),
            HasSubstr("twice"), HasSubstr("check HF_ENDPOINT")));
  expect_no_weights();
}

TEST_F(HubRefusals, MoreThanWasAnnounced) {
  hub.set_faults({{{"kind", "longer"}, {"match", "model.safetensors"}, {"times", 99}}});
  EXPECT_THAT(fetch_error(),
              HasSubstr("model.safetensors: the content that 127.0.0.1 sends is longer than the listing says, or "
                        "is another part of the file"));
  expect_no_weights();
}

// ModelScope cuts a list after 3000 entries without a word. The hub of these tests lists one folder.
TEST_F(HubRefusals, AListThatModelScopeMayHaveCut) {
  const auto error = [&](const std::string& name) {
    return user_error([&] { Snapshot::open(hub.settings(Hub::kModelScope), {RepoKind::kModel, name, ""}); });
  };
  for (int i = 0; i < 2998; ++i) hub.put(fmt::format("models/org/many/{}.txt", i), "");
  EXPECT_EQ(error("org/many"), "no error");
  fs::rename(hub.path() / "models/org/many", hub.path() / "models/org/more");
  hub.put("models/org/more/last.txt", "");
  EXPECT_THAT(error("org/more"), HasSubstr("models/org/more has more files than Fettle can list (3000 files"));
}

TEST_F(HubRefusals, AConnectionThatAlwaysBreaks) {
  hub.set_faults({{{"kind", "cut"}, {"match", "model.safetensors"}, {"times", 99}}});
  EXPECT_THAT(fetch_error(), AllOf(HasSubstr("5 times"), HasSubstr("start again to continue")));
  expect_no_weights();
  hub.set_faults(json::array());
  EXPECT_EQ(fetch_error(), "no error");
}

TEST_F(HubRefusals, StatusOfTheCdn) {
  hub.set_faults({{{"kind", "status"}, {"status", 403}, {"at", "cdn"}, {"times", 99}}});
  EXPECT_THAT(fetch_error(),
              AllOf(HasSubstr("model.safetensors: 127.0.0.1 answers with status 403"), HasSubstr("proxy"),
                    HasSubstr("allow *.hf.co"), Not(HasSubstr("HF_TOKEN")), Not(HasSubstr("signature"))));
}

// A proxy that answers every request with one status and closes the connection.
class RefusingProxy {
 public:
  explicit RefusingProxy(const std::string& status) : reply_("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n") {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, plain, size) != 0 || listen(listener_, 8) != 0 || getsockname(listener_, plain, &size) != 0)
      throw std::runtime_error("the proxy of the test cannot listen");
    address_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    server_ = std::thread([this] { serve(); });
  }
  ~RefusingProxy() {
    shutdown(listener_, SHUT_RDWR);
    server_.join();
    close(listener_);
  }
  const std::string& address() const { return address_; }
  int requests() const { return requests_; }

 private:
  void serve() {
    for (int client = 0; (client = accept(listener_, nullptr, nullptr)) >= 0; close(client)) {
      std::string request;
      char block[1024];
      while (request.find("\r\n\r\n") == std::string::npos) {
        const ssize_t count = recv(client, block, sizeof block, 0);
        if (count <= 0) break;
        request.append(block, static_cast<size_t>(count));
      }
      ++requests_;
      send(client, reply_.data(), reply_.size(), MSG_NOSIGNAL);
    }
  }

  std::string reply_, address_;
  int listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::atomic<int> requests_ = 0;
  std::thread server_;
};

TEST_F(HubRefusals, AProxyThatRefusesTheHub) {
  const RepoName name{RepoKind::kModel, "org/small-model", ""};
  HubSettings settings = hub.settings();
  settings.endpoint = "https://hub.example.org";
  for (const auto& [status, words] :
       {std::pair{"407 Proxy Authentication Required",
                  "the proxy wants a login before it connects to hub.example.org; put it into https_proxy"},
        std::pair{"403 Forbidden", "the proxy does not connect to hub.example.org (status 403); it may block this"}}) {
    const RefusingProxy proxy(status);
    const Environment variable("https_proxy", proxy.address());
    EXPECT_THAT(user_error([&] { Snapshot::open(settings, name); }), HasSubstr(words));
    EXPECT_EQ(proxy.requests(), 1);
  }
}

TEST_F(HubRefusals, AProxyThatRefusesTheCdn) {
  for (const auto& [status, words] :
       {std::pair{"407 Proxy Authentication Required",
                  "model.safetensors: the proxy wants a login before it connects to cdn.example.org"},
        std::pair{"403 Forbidden", "model.safetensors: the proxy does not connect to cdn.example.org (status 403)"}}) {
    const RefusingProxy proxy(status);
    const Environment variable("https_proxy", proxy.address());
    hub.set_faults(
        {{{"kind", "redirect"}, {"to", "https://cdn.example.org/x"}, {"match", "/resolve/"}, {"times", 99}}});
    EXPECT_THAT(fetch_error(), HasSubstr(words));
    EXPECT_EQ(proxy.requests(), 1);
  }
}

// A proxy may fail for a while. Then the request is sent again.
TEST_F(HubRefusals, AProxyThatFailsForNow) {
  const RefusingProxy proxy("503 Service Unavailable");
  const Environment variable("https_proxy", proxy.address());
  hub.set_faults({{{"kind", "redirect"}, {"to", "https://cdn.example.org/x"}, {"match", "/resolve/"}, {"times", 99}}});
  EXPECT_THAT(fetch_error(), HasSubstr("cdn.example.org (status 503); it may block this host: allow it there, and"));
  EXPECT_EQ(proxy.requests(), 5);
}

TEST_F(HubRefusals, RedirectsToOtherSchemes) {
  for (const char* target : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x"}) {
    hub.set_faults({{{"kind", "redirect"}, {"to", target}, {"match", "/resolve/"}}});
    EXPECT_THAT(fetch_error(), HasSubstr("wanted http or https; the redirect is not followed")) << target;
  }
  EXPECT_THAT(user_error([] { redirect_target("https://a.org/x", "http://a.org/y"); }),
              HasSubstr("a.org redirects to http, wanted https"));
  EXPECT_EQ(redirect_target("https://a.org/x/y", "/z?q=1"), "https://a.org/z?q=1");
  EXPECT_EQ(redirect_target("http://a.org/x/y", "//b.org/z"), "http://b.org/z");
}

TEST_F(HubRefusals, EndlessRedirects) {
  hub.set_faults({{{"kind", "redirect"}, {"to", "/api/models/again"}, {"match", "/api/models"}, {"times", 99}}});
  EXPECT_THAT(open_error("org/small-model"), HasSubstr("redirects again and again"));
  hub.set_faults({{{"kind", "redirect"}, {"to", "/again/resolve/"}, {"match", "/resolve/"}, {"times", 99}}});
  EXPECT_THAT(fetch_error(), HasSubstr("redirects again and again; check HF_ENDPOINT and https_proxy"));
}

TEST_F(HubRefusals, ListingsThatLeaveTheFolder) {
  for (const char* path : {"../../../evil", "/etc/evil", "a/../../evil", "a//b", "", "a\\b", "a\nb", ".", "a/."}) {
    hub.put("listing.json",
            json::array({{{"type", "file"}, {"path", path}, {"size", 1}, {"oid", std::string(40, 'a')}}}).dump());
    EXPECT_THAT(open_error("org/small-model"), HasSubstr("with a path that cannot be used here")) << path;
  }
  hub.put("listing.json", json::array({{{"type", "file"}, {"path", "a"}, {"size", 1}, {"oid", "../../evil"}}}).dump());
  EXPECT_THAT(open_error("org/small-model"), HasSubstr("the file \"a\" with no checksum"));
  hub.put("listing.json",
          json::array({{{"type", "file"}, {"path", "a"}, {"size", -5}, {"oid", std::string(40, 'a')}}}).dump());
  EXPECT_THAT(open_error("org/small-model"), HasSubstr("with no size"));
}

TEST_F(HubRefusals, SomethingElseThanAHub) {
  hub.set_faults({{{"kind", "status"}, {"status", 418}, {"match", "/revision/"}}});
  EXPECT_THAT(open_error("org/small-model"), HasSubstr("answers with status 418"));
  hub.set_faults({{{"kind", "status"}, {"status", 200}, {"match", "/revision/"}, {"body", "<html>Log in</html>"}}});
  EXPECT_THAT(open_error("org/small-model"), HasSubstr("check that HF_ENDPOINT names a hub, and that the network"));
  hub.set_faults({{{"kind", "status"}, {"status", 418}, {"at", "cdn"}, {"times", 99}}});
  EXPECT_THAT(fetch_error(), HasSubstr("answers with status 418; start again to list the files anew"));
  const Environment endpoint("HF_ENDPOINT", "ftp://x");
  EXPECT_THAT(user_error([] { read_hub_settings(Hub::kHuggingFace); }),
              HasSubstr("HF_ENDPOINT: 'ftp://x' is not an address"));
  const Environment timeout("HF_HUB_DOWNLOAD_TIMEOUT", "soon");
  const Environment plain("HF_ENDPOINT", std::nullopt);
  EXPECT_THAT(user_error([] { read_hub_settings(Hub::kHuggingFace); }),
              HasSubstr("HF_HUB_DOWNLOAD_TIMEOUT: found 'soon', wanted a number of seconds"));
}

TEST_F(HubRefusals, ACacheThatCannotBeWritten) {
  write_text(hub.cache().parent_path() / "hub", "a file");
  EXPECT_THAT(fetch_error(), AllOf(HasSubstr("Not a directory"), HasSubstr("set HF_HUB_CACHE to another folder")));
  EXPECT_THAT(user_error([&] {
                Snapshot::open(hub.settings(Hub::kModelScope), *read_repo_name(RepoKind::kModel, "org/small-model"))
                    .fetch({"config.json"});
              }),
              HasSubstr("set MODELSCOPE_CACHE to another folder"));
}

TEST_F(HubRefusals, AFileThatDoesNotFitOnTheDisk) {
  hub.put("listing.json", json::array({{{"type", "file"},
                                        {"path", "model.safetensors"},
                                        {"size", int64_t{1} << 60},
                                        {"oid", std::string(40, 'a')}}})
                              .dump());
  try {
    fetch_error();
    FAIL();
  } catch (const DoesNotFit& error) {
    EXPECT_THAT(error.what(), HasSubstr("its disk has"));
  }
}

// The first signal ends the download. The part that was downloaded stays, and the locks are released.
TEST_F(HubRefusals, AnInterruptKeepsThePart) {
  hub.set_faults({{{"kind", "slow"}, {"match", "model.safetensors"}, {"rate", 20000}}});
  const pid_t child = fork();
  if (child == 0) {
    const InterruptScope interrupts;
    try {
      fetch_error();
    } catch (const Error& error) {
      _exit(static_cast<int>(error.code()));
    }
    _exit(0);
  }
  const auto part = [&] {
    std::error_code none;
    for (fs::recursive_directory_iterator it(hub.cache(), none), end; it != end; it.increment(none))
      if (it->path().extension() == ".incomplete") return static_cast<int64_t>(it->file_size(none));
    return int64_t{0};
  };
  for (int tries = 0; part() < 1000 && tries < 1000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
  EXPECT_GT(part(), 0);
  expect_no_weights();
  EXPECT_EQ(fetch_error(), "no error");
  bool continued = false;
  for (const json& request : hub.log()) continued = continued || request["range"] != "";
  EXPECT_TRUE(continued);
}

}  // namespace
}  // namespace fettle
