#include "tutti/control/web_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <exception>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/control/account_table.h"
#include "tutti/control/audit.h"
#include "tutti/control/controller_metrics.h"
#include "tutti/control/digest.h"
#include "tutti/control/web_live.h"
#include "tutti/control/web_sections.h"
#include "tutti/report/html.h"
#include "tutti/report/served_page.h"

namespace tutti::control {
namespace {

constexpr size_t kMostBodyBytes = 256 << 10;
constexpr const char* kCookie = "tutti";
constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kBearer = "Bearer ";

using httplib::Request;
using httplib::Response;

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return 400;
    case ErrorKind::permission: return 403;
    case ErrorKind::not_found: return 404;
    default: return 500;
  }
}

std::string cookie_of(const Request& request) {
  const std::string header = request.get_header_value("Cookie");
  for (const std::string_view part : split(header, ';')) {
    const std::string_view cookie = trim(part);
    const std::string prefix = std::string(kCookie) + "=";
    if (starts_with(cookie, prefix)) return std::string(cookie.substr(prefix.size()));
  }
  return {};
}

// As browsers tell it where they trust the connection. It covers logging in, which has no session
// and so no form key yet: nobody is to be logged in as somebody else by another page.
bool is_from_elsewhere(const Request& request) {
  const std::string site = request.get_header_value("Sec-Fetch-Site");
  return !site.empty() && site != "same-origin" && site != "none";
}

void set_cookie(Response& response, const std::string& value, int64_t seconds) {
  response.set_header(
      "Set-Cookie",
      fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}", kCookie, value, seconds));
}

WebFields fields_of(const Request& request) {
  WebFields out;
  for (const auto& [name, value] : request.params) out[name] = value;
  return out;
}

std::string message_page(const std::string& title, const std::string& text) {
  report::Page page;
  page.kind = "Control plane";
  page.title = title;
  page.notes = {text};
  page.sections.push_back({"back", "", "<p><a href=\"/\">Back to the page</a></p>\n"});
  return report::render_served(page, kWebScript);
}

}  // namespace

struct WebServer::State {
  explicit State(WebOptions given) : options(std::move(given)) {}

  WebOptions options;
  httplib::Server server;
  WebSessions sessions;
  RunDrawings drawings;
  LiveParts live{[this] { return open(); }};
  int port = 0;

  // A request of somebody who is logged in, with a connection to the database of its own.
  struct Visit {
    std::unique_ptr<Database> database;
    WebSessions::Session session;
    Caller caller;
    WebPages pages;
  };
  using Page = std::function<void(Visit&, const Request&, Response&)>;

  std::unique_ptr<Database> open() const {
    return open_control(posix_file_system(), options.folder);
  }

  bool knows_host(const Request& request) const {
    const std::string host = request.get_header_value("Host");
    std::vector<std::string> names = options.hosts;
    names.insert(names.end(), {options.address, "localhost", "127.0.0.1", "[::1]"});
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return host == name || host == fmt::format("{}:{}", name, port);
    });
  }

  // A file of the folder that the server was started in is none.
  bool offers(const std::string& recipe) const {
    return std::find(options.recipes.begin(), options.recipes.end(), recipe) !=
           options.recipes.end();
  }

  void answer_error(const Request& request, Response& response, const Error& error) const {
    response.status = status_of(error.kind());
    if (response.status == 500) {
      options.log(fmt::format("{} {}: {}", request.method, request.path, error.what()));
    }
    // What went wrong inside is for the log; what was refused is for the reader.
    const std::string text = response.status == 500 ? "The server could not do it." : error.what();
    response.set_content(message_page("That did not work", text), kHtml);
  }

  // Runs `page` for who is logged in; everybody else is sent to log in, or away.
  httplib::Server::Handler visit(bool sends_form, const Page& page) {
    return [this, sends_form, page](const Request& request, Response& response) {
      try {
        const int64_t now_ms = wall_milliseconds();
        auto database = open();
        const auto session = sessions.find(*database, cookie_of(request), now_ms);
        if (!session) {
          response.status = 401;
          response.set_content(login_page(""), kHtml);
          return;
        }
        Database& opened = *database;
        Visit visit{std::move(database),
                    *session,
                    {opened, session->user, now_ms},
                    read_pages(fields_of(request))};
        if (sends_form && !same_text(request.get_param_value("form_key"), session->form_key)) {
          fail(ErrorKind::permission, "the form is not of this session; open the page anew");
        }
        page(visit, request, response);
      } catch (const Error& error) {
        answer_error(request, response, error);
      }
      if (sends_form) bring_trail_up_to_date();
    };
  }

  void bring_trail_up_to_date() {
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

  void show_page(Visit& visit, Response& response, const WebFields& filled,
                 const std::string& note) {
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
    response.set_content(report::render_served(page, kWebScript), kHtml);
  }

  void add_session_routes() {
    server.Post("/login", [this](const Request& request, Response& response) {
      try {
        const auto database = open();
        const auto cookie =
            sessions.login(*database, request.get_param_value("token"), wall_milliseconds());
        bring_trail_up_to_date();
        if (!cookie) {
          response.status = 401;
          response.set_content(login_page("This is no valid token."), kHtml);
          return;
        }
        set_cookie(response, *cookie, kSessionMs / 1000);
        response.set_redirect("/", 303);
      } catch (const Error& error) {
        answer_error(request, response, error);
      }
    });
    server.Post("/logout", visit(true, [this](Visit&, const Request& request, Response& response) {
                  sessions.end(cookie_of(request));
                  set_cookie(response, "", 0);
                  response.set_redirect("/", 303);
                }));
  }

  void add_page_routes() {
    server.Get("/", visit(false, [this](Visit& visit, const Request&, Response& response) {
                 show_page(visit, response, {}, "");
               }));
    server.Get("/sections",
               visit(false, [this](Visit& visit, const Request& request, Response& response) {
                 const LiveAnswer answer =
                     live.answer(view_of(visit), request.get_header_value("If-None-Match"));
                 response.set_header("ETag", answer.tag);
                 response.status = answer.unchanged ? 304 : 200;
                 if (!answer.unchanged) response.set_content(answer.body, "application/json");
               }));
    server.Get(kWebScript, [](const Request&, Response& response) {
      response.set_content(std::string(web_script()), "text/javascript; charset=utf-8");
    });
  }

  void add_form_routes() {
    server.Post(
        "/submit", visit(true, [this](Visit& visit, const Request& request, Response& response) {
          const WebFields fields = fields_of(request);
          try {
            const WebSubmission submission = read_submission(fields);
            // Before anything is written or computed for him.
            authorize(visit.caller, Action::submit, submission.project,
                      "project " + submission.project);
            if (!submission.recipe.empty() && !offers(submission.recipe)) {
              fail(ErrorKind::usage, "recipe: '{}' is none of those that the form offers",
                   submission.recipe);
            }
            const bool confirmed = request.get_param_value("confirmed") == "yes";
            const WebAnswer answer = options.submit(visit.session.token, submission, !confirmed);
            if (confirmed) {
              options.ensure_controller();
              response.set_redirect("/#queue", 303);
              return;
            }
            report::Page page;
            page.kind = "Control plane";
            page.title = "Submit this?";
            page.sections.push_back(
                {"confirm", "", confirm_html(fields, answer, visit.session.form_key)});
            response.set_content(report::render_served(page, kWebScript), kHtml);
          } catch (const Error& error) {
            if (status_of(error.kind()) == 500) throw;
            response.status = status_of(error.kind());
            show_page(visit, response, fields, error.what());
          }
        }));
    server.Post(
        "/steer", visit(true, [this](Visit& visit, const Request& request, Response& response) {
          const Job job =
              steer(visit.caller, request.get_param_value("what"), request.get_param_value("job"));
          if (is_final(job.state)) options.ended(job);
          options.ensure_controller();
          response.set_redirect("/#queue", 303);
        }));
  }

  void add_metrics_route() {
    server.Get("/metrics", [this](const Request& request, Response& response) {
      try {
        const int64_t now_ms = wall_milliseconds();
        const auto database = open();
        std::optional<std::string> user;
        const std::string header = request.get_header_value("Authorization");
        if (starts_with(header, kBearer)) {
          user = user_of_token(*database, header.substr(std::string_view(kBearer).size()), now_ms);
        } else if (const auto session = sessions.find(*database, cookie_of(request), now_ms)) {
          user = session->user;
        }
        if (!user) {
          response.status = 401;
          response.set_header("WWW-Authenticate", "Bearer");
          response.set_content("a token is needed\n", "text/plain");
          return;
        }
        authorize({*database, *user, now_ms}, Action::run_controller, kAllProjects, "metrics");
        response.set_content(controller_metrics(*database, posix_file_system(), options.folder,
                                                options.controller_runs(), now_ms),
                             "text/plain; version=0.0.4; charset=utf-8");
      } catch (const Error& error) {
        response.status = status_of(error.kind());
        response.set_content(response.status == 500 ? "the server could not do it\n"
                                                    : std::string(error.what()) + "\n",
                             "text/plain");
      }
    });
  }

  void set_up() {
    // The library's default would share the port with another server.
    server.set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server.set_payload_max_length(kMostBodyBytes);
    server.set_keep_alive_timeout(5);
    server.set_read_timeout(10);
    server.set_default_headers({{"X-Content-Type-Options", "nosniff"},
                                {"X-Frame-Options", "DENY"},
                                {"Referrer-Policy", "no-referrer"},
                                {"Cross-Origin-Resource-Policy", "same-origin"},
                                {"Content-Security-Policy", "frame-ancestors 'none'"},
                                {"Cache-Control", "no-store"}});
    server.set_pre_routing_handler([this](const Request& request, Response& response) {
      if (!knows_host(request)) {
        response.status = 421;
        response.set_content("this server is not asked under that name; --host allows one\n",
                             "text/plain");
        return httplib::Server::HandlerResponse::Handled;
      }
      if (request.method != "GET" && is_from_elsewhere(request)) {
        response.status = 403;
        response.set_content("forms are taken from this page only\n", "text/plain");
        return httplib::Server::HandlerResponse::Handled;
      }
      return httplib::Server::HandlerResponse::Unhandled;
    });
    // The library's default tells the reader what was thrown.
    server.set_exception_handler(
        [this](const Request& request, Response& response, const std::exception_ptr& thrown) {
          std::string what = "not a std::exception";
          try {
            std::rethrow_exception(thrown);
          } catch (const std::exception& exception) {
            what = exception.what();
          } catch (...) {
          }
          options.log(fmt::format("{} {}: {}", request.method, request.path, what));
          response.status = 500;
          response.set_content("the server could not do it\n", "text/plain");
        });
    add_session_routes();
    add_page_routes();
    add_form_routes();
    add_metrics_route();
  }
};

WebServer::WebServer(WebOptions options) : state_(std::make_unique<State>(std::move(options))) {
  State& state = *state_;
  state.set_up();
  const WebOptions& chosen = state.options;
  if (!state.server.is_valid()) fail(ErrorKind::io, "the server does not start");
  if (chosen.port == 0) {
    state.port = state.server.bind_to_any_port(chosen.address);
    if (state.port <= 0) {
      fail(ErrorKind::usage, "--address {}: none of this machine", chosen.address);
    }
    return;
  }
  state.port = chosen.port;
  if (!state.server.bind_to_port(chosen.address, chosen.port)) {
    fail(ErrorKind::io, "port {} of {} cannot be had: taken, privileged, or no such address",
         chosen.port, chosen.address);
  }
}

WebServer::~WebServer() = default;

int WebServer::port() const { return state_->port; }
void WebServer::run() { state_->server.listen_after_bind(); }
void WebServer::stop() { state_->server.stop(); }

}  // namespace tutti::control
