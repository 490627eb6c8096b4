#include "tutti/control/web/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/form.h"
#include "tutti/base/http_server.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/control/audit/audit.h"
#include "tutti/control/audit/digest.h"
#include "tutti/control/controller/controller_metrics.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/control/web/answers.h"
#include "tutti/control/web/live.h"
#include "tutti/control/web/sections.h"
#include "tutti/report/html.h"
#include "tutti/report/served_page.h"

namespace tutti::control {
namespace {

constexpr size_t kMostBodyBytes = 256 << 10;
constexpr const char* kBearer = "Bearer ";
constexpr auto kWatchPause = std::chrono::milliseconds(500);
// Of every answer, beside the policy of pages.
constexpr std::pair<const char*, const char*> kGuards[] = {
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-store"}};

}  // namespace

struct WebServer::State {
  explicit State(WebOptions given) : options(std::move(given)), server(server_options()) {}

  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  // A request of a logged-in user, with its own database connection.
  struct Visit {
    const HttpRequest& request;
    WebFields fields;  // of the form; empty for GET
    std::unique_ptr<Database> database;
    WebSessions::Session session;
    Caller caller;
    WebPages pages;
  };
  using Page = std::function<HttpResponse(const Visit&)>;

  WebOptions options;
  WebSessions sessions;
  RunDrawings drawings;
  LiveParts live{[this] { return open(); }};
  std::map<std::string, Handler> routes;  // "GET /metrics"
  HttpServer server;
  std::mutex mutex;  // of is_stopped
  std::condition_variable stopped;
  bool is_stopped = false;

  std::unique_ptr<Database> open() const {
    return open_control(posix_file_system(), options.folder);
  }

  bool knows_host(const HttpRequest& request) const {
    const std::string host = request.header("host");
    std::vector<std::string> names = options.hosts;
    names.insert(names.end(), {options.address, "localhost", "127.0.0.1", "[::1]"});
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return host == name || host == fmt::format("{}:{}", name, server.port());
    });
  }

  // A file of the folder that the server was started in is none.
  bool offers(const std::string& recipe) const {
    return std::find(options.recipes.begin(), options.recipes.end(), recipe) !=
           options.recipes.end();
  }

  HttpResponse answer_error(const HttpRequest& request, const Error& error) const {
    const int status = status_of(error.kind());
    if (status == 500) {
      options.log(fmt::format("{} {}: {}", request.method, printable(request.path), error.what()));
    }
    // What went wrong inside is for the log; what was refused is for the reader.
    return html_of(message_page("That did not work",
                                status == 500 ? "The server could not do it." : error.what()),
                   status);
  }

  // Runs `page` for logged-in users; others are sent to log in, or refused.
  Handler visit(bool sends_form, const Page& page) {
    return [this, sends_form, page](const HttpRequest& request) {
      HttpResponse response;
      try {
        response = answer_visit(request, sends_form, page);
      } catch (const Error& error) {
        response = answer_error(request, error);
      }
      if (sends_form) export_audit_log();
      return response;
    };
  }

  HttpResponse answer_visit(const HttpRequest& request, bool sends_form, const Page& page) {
    const int64_t now_ms = wall_milliseconds();
    auto database = open();
    const auto session = sessions.find(*database, cookie_of(request), now_ms);
    if (!session) return html_of(login_page(""), 401);
    Database& opened = *database;
    const Visit visit{request,
                      sends_form ? parse_form(request.body) : WebFields(),
                      std::move(database),
                      *session,
                      {opened, session->user, now_ms, request.client, session->token_id},
                      read_pages(parse_form(request.query))};
    if (sends_form && !same_text(field_of(visit.fields, "form_key"), session->form_key)) {
      fail(ErrorKind::permission, "the form is not of this session; reload the page");
    }
    return page(visit);
  }

  void export_audit_log() {
    try {
      export_audit(*open(), posix_file_system(), options.folder.audit());
    } catch (const Error& error) {
      options.log(error.what());
    }
  }

  WebView view_of(const Visit& visit) {
    return {visit.caller, posix_file_system(),       options.folder,
            drawings,     options.controller_runs(), visit.session.form_key,
            visit.pages};
  }

  std::string whole_page(const Visit& visit, const WebFields& filled, const std::string& note) {
    const WebView view = view_of(visit);
    report::Page page;
    page.kind = "Control plane";
    page.title = "Jobs, nodes and budgets";
    page.tiles = live_tiles(view);
    if (!note.empty()) page.notes.push_back(note);
    page.sections.push_back(
        {"session", "",
         fmt::format(
             "<form class=\"form row\" method=\"post\" action=\"/logout\">{} <input "
             "type=\"hidden\" name=\"form_key\" value=\"{}\"><button type=\"submit\">Log "
             "out</button> <span class=\"note\" id=\"live-state\" aria-live=\"polite\"></span>"
             "</form>\n",
             report::escape_html(visit.caller.user), report::escape_html(visit.session.form_key))});
    const std::string form =
        submit_form(visit.caller, options.recipes, visit.session.form_key, filled);
    if (!form.empty()) {
      page.sections.push_back(
          {"submit", "", report::html_details("Submit a recipe", form, !filled.empty())});
    }
    for (report::Section& section : live_sections(view)) {
      section.html = fmt::format("<div id=\"live-{}\">{}</div>\n", section.id, section.html);
      if (section.id == "queue") {
        section.html += steer_form(visit.caller, visit.session.form_key);
      }
      page.sections.push_back(std::move(section));
    }
    return report::render_served(page, kWebScript);
  }

  HttpResponse live_parts(const Visit& visit) {
    const LiveAnswer answer = live.answer(view_of(visit), visit.request.header("if-none-match"));
    HttpResponse response = answer_of(answer.unchanged ? 304 : 200, "application/json",
                                      answer.unchanged ? "" : answer.body);
    response.headers.emplace_back("ETag", answer.tag);
    response.hold = answer.unchanged && visit.request.held_seconds < wanted_wait(visit.request);
    return response;
  }

  // Until stop(): wakes readers that wait for a change.
  void watch() {
    std::string seen;
    bool logged = false;  // the current error
    std::unique_lock lock(mutex);
    while (!stopped.wait_for(lock, kWatchPause, [this] { return is_stopped; })) {
      try {
        std::string version = live.version(wall_milliseconds(), options.controller_runs());
        if (version == seen) continue;
        seen = std::move(version);
        logged = false;
        server.wake();
      } catch (const Error& error) {
        if (!std::exchange(logged, true)) options.log(error.what());
      }
    }
  }

  void stop() {
    {
      const std::scoped_lock lock(mutex);
      is_stopped = true;
    }
    stopped.notify_all();
    server.stop();
  }

  HttpResponse log_in(const HttpRequest& request) {
    try {
      const auto database = open();
      const auto cookie = sessions.login(*database, field_of(parse_form(request.body), "token"),
                                         request.client, wall_milliseconds());
      export_audit_log();
      if (!cookie) return html_of(login_page("Invalid token."), 401);
      HttpResponse response = see("/");
      set_cookie(request, response, *cookie, kSessionMs / 1000);
      return response;
    } catch (const TooManyGuesses& error) {
      return wait_for(html_of(login_page(error.what()), 429), error.wait_seconds());
    } catch (const Error& error) {
      return answer_error(request, error);
    }
  }

  HttpResponse log_out(const Visit& visit) {
    sessions.end(cookie_of(visit.request));
    HttpResponse response = see("/");
    set_cookie(visit.request, response, "", 0);
    return response;
  }

  HttpResponse submit_recipe(const Visit& visit) {
    try {
      WebSubmission submission = read_submission(visit.fields);
      submission.client = visit.caller.client;
      // Before anything is written or computed for him.
      authorize(visit.caller, Action::submit, submission.project, "project " + submission.project);
      if (!submission.recipe.empty() && !offers(submission.recipe)) {
        fail(ErrorKind::usage, "unknown recipe '{}'", submission.recipe);
      }
      const bool confirmed = field_of(visit.fields, "confirmed") == "yes";
      const WebAnswer answer = options.submit(visit.session.token, submission, !confirmed);
      if (confirmed) {
        options.ensure_controller();
        return see("/#queue");
      }
      report::Page page;
      page.kind = "Control plane";
      page.title = "Submit this?";
      page.sections.push_back(
          {"confirm", "", confirm_html(visit.fields, answer, visit.session.form_key)});
      return html_of(report::render_served(page, kWebScript));
    } catch (const Error& error) {
      const int status = status_of(error.kind());
      if (status == 500) throw;
      return html_of(whole_page(visit, visit.fields, error.what()), status);
    }
  }

  HttpResponse steer_job(const Visit& visit) {
    const Job job =
        steer(visit.caller, field_of(visit.fields, "what"), field_of(visit.fields, "job"));
    if (is_final(job.state)) options.ended(job);
    options.ensure_controller();
    return see("/#queue");
  }

  HttpResponse metrics(const HttpRequest& request) {
    try {
      const int64_t now_ms = wall_milliseconds();
      const auto database = open();
      std::optional<std::string> user;
      const std::string header = request.header("authorization");
      if (starts_with(header, kBearer)) {
        user = sessions.user_of(*database, header.substr(std::string_view(kBearer).size()),
                                request.client, now_ms, "metrics");
        if (!user) export_audit_log();
      } else if (const auto session = sessions.find(*database, cookie_of(request), now_ms)) {
        user = session->user;
      }
      if (!user) {
        HttpResponse response = text_of(401, "a token is needed");
        response.headers.emplace_back("WWW-Authenticate", "Bearer");
        return response;
      }
      authorize({*database, *user, now_ms, request.client}, Action::run_controller, kAllProjects,
                "metrics");
      return answer_of(200, "text/plain; version=0.0.4; charset=utf-8",
                       controller_metrics(*database, posix_file_system(), options.folder,
                                          options.controller_runs(), now_ms));
    } catch (const TooManyGuesses& error) {
      return wait_for(text_of(429, error.what()), error.wait_seconds());
    } catch (const Error& error) {
      const int status = status_of(error.kind());
      return text_of(status, status == 500 ? "the server could not do it" : error.what());
    }
  }

  void add_routes() {
    routes["POST /login"] = [this](const HttpRequest& request) { return log_in(request); };
    routes["POST /logout"] = visit(true, [this](const Visit& visit) { return log_out(visit); });
    routes["GET /"] =
        visit(false, [this](const Visit& visit) { return html_of(whole_page(visit, {}, "")); });
    routes["GET /sections"] =
        visit(false, [this](const Visit& visit) { return live_parts(visit); });
    routes["POST /submit"] =
        visit(true, [this](const Visit& visit) { return submit_recipe(visit); });
    routes["POST /steer"] = visit(true, [this](const Visit& visit) { return steer_job(visit); });
    routes["GET /metrics"] = [this](const HttpRequest& request) { return metrics(request); };
    routes[fmt::format("GET {}", kWebScript)] = [](const HttpRequest&) {
      return answer_of(200, "text/javascript; charset=utf-8", std::string(web_script()));
    };
  }

  HttpResponse route(const HttpRequest& request) const {
    if (!knows_host(request)) {
      return text_of(421, "this server is not asked under that name; --host allows one");
    }
    if (request.method != "GET" && is_from_elsewhere(request)) {
      return text_of(403, "forms are taken from this page only");
    }
    const auto found = routes.find(request.method + " " + request.path);
    if (found == routes.end()) return text_of(404, "page not found");
    return found->second(request);
  }

  static HttpResponse guarded(HttpResponse response) {
    for (const auto& [name, value] : kGuards) response.headers.emplace_back(name, value);
    response.headers.emplace_back("Content-Security-Policy",
                                  report::served_policy() + "; frame-ancestors 'none'");
    return response;
  }

  HttpOptions server_options() {
    add_routes();
    HttpOptions http;
    http.address = options.address;
    http.port = options.port;
    http.proxies = options.proxies;
    http.limits.body_bytes = kMostBodyBytes;
    http.handler = [this](const HttpRequest& request) { return guarded(route(request)); };
    http.refusal = [](int status, const std::string& text) {
      return guarded(html_of(message_page("That did not work", text), status));
    };
    http.log = options.log;
    return http;
  }
};

WebServer::WebServer(WebOptions options) : state_(std::make_unique<State>(std::move(options))) {}

WebServer::~WebServer() = default;

int WebServer::port() const { return state_->server.port(); }

void WebServer::run() {
  std::thread watch([this] { state_->watch(); });
  state_->server.run();
  state_->stop();  // where run() ends by itself
  watch.join();
}

void WebServer::stop() { state_->stop(); }

}  // namespace tutti::control
