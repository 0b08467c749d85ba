//! `dashboard` with a real API server. Refused requests are tested in `pkg/dashboard`.

use di_apiserver_tests::Job;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout},
};

use crate::{exec::grant_reading, plugin::Plugin};

/// A dashboard with the secrets of its page.
struct Dashboard {
    _process: Child,
    _lines: Lines<BufReader<ChildStdout>>,
    address: String,
    token: String,
    job: String,
    cookie: String,
}

impl Dashboard {
    async fn start(plugin: &Plugin, args: &[&str]) -> Self {
        let (process, mut lines) = plugin.start(&[&["dashboard"][..], args].concat());
        let url = lines.next_line().await.unwrap().unwrap();
        let (address, fragment) = url.split_once("/#token=").unwrap();
        let (token, job) = fragment.split_once("&job=").unwrap_or((fragment, ""));
        let mut dashboard = Self {
            _process: process,
            _lines: lines,
            address: address.strip_prefix("http://").unwrap().to_owned(),
            token: token.to_owned(),
            job: job.to_owned(),
            cookie: String::new(),
        };
        let body = json!({"token": dashboard.token});
        let session = dashboard.send("POST", "/api/session", &body).await;
        let (_, cookie) = session.split_once("set-cookie: ").unwrap();
        cookie
            .split(';')
            .next()
            .unwrap()
            .clone_into(&mut dashboard.cookie);
        dashboard
    }

    async fn connect(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        let Self {
            address,
            token,
            cookie,
            ..
        } = self;
        let body = body.to_string();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: {address}\r\nOrigin: http://{address}\r\n\
             Cookie: {cookie}\r\nX-DI-Token: {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// Sends a request, and returns the whole response.
    async fn send(&self, method: &str, path: &str, body: &Value) -> String {
        let mut stream = self.connect(method, path, body).await;
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    /// The status and the body of a response.
    async fn call(&self, method: &str, path: &str, body: &Value) -> (String, Value) {
        let response = self.send(method, path, body).await;
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().to_owned();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Reads the events of the job until one fits.
    async fn until_job(&self, fits: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/api/watch?job={}", self.job);
        let stream = self.connect("GET", &path, &json!({})).await;
        let mut lines = BufReader::new(stream).lines();
        let read = async {
            loop {
                let line = lines
                    .next_line()
                    .await
                    .unwrap()
                    .expect("the stream continues");
                let Some(data) = line.strip_prefix("data: {\"job\":") else {
                    continue;
                };
                let job = data.strip_suffix('}').unwrap();
                let job: Value = serde_json::from_str(job).unwrap();
                if fits(&job) {
                    return job;
                }
            }
        };
        let limit = std::time::Duration::from_secs(30);
        tokio::time::timeout(limit, read).await.unwrap()
    }
}

/// The codes of the disabled buttons of a job; `-` for enabled ones.
fn codes(job: &Value) -> String {
    let actions = job["actions"].as_array().unwrap();
    let codes = actions
        .iter()
        .map(|action| action["disabled"]["code"].as_str().unwrap_or("-"));
    codes.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn dashboard_shows_and_changes_a_job() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 1)).await;
    let dashboard = Dashboard::start(&plugin, &["j"]).await;
    let job = dashboard
        .until_job(|job| job["logs"]["disabled"]["code"] != "unknown")
        .await;
    assert_eq!(codes(&job), "- notSuspended - - - none none -");
    assert_eq!(job["podsHidden"], Value::Null);
    let path = |action: &str| format!("/api/jobs/{}/{action}", dashboard.job);
    let uid = &job["uid"];
    let by = json!({"uid": uid, "collectors": 2});
    let (_, scaled) = dashboard.call("POST", &path("scale"), &by).await;
    assert_eq!(scaled["message"], "collectors 1 -> 3");
    let body = json!({"uid": uid});
    let (_, suspended) = dashboard.call("POST", &path("suspend"), &body).await;
    assert_eq!(suspended["message"], "suspended");
    let fits = |job: &Value| job["suspended"] == true && job["collectors"]["declared"] == 3;
    dashboard.until_job(fits).await;
    let (status, deleted) = dashboard.call("POST", &path("delete"), &body).await;
    assert_eq!(
        (status.as_str(), &deleted["message"]),
        ("200", &json!("deleted"))
    );
    dashboard.until_job(Value::is_null).await;
    let (status, error) = dashboard.call("POST", &path("delete"), &body).await;
    assert_eq!(status, "404", "{error}");
}

#[tokio::test]
async fn dashboard_has_the_permissions_of_its_user() {
    let plugin = Plugin::new().await;
    plugin.space.create(&Job::new("j", 1)).await;
    grant_reading(&plugin).await;
    let dashboard = Dashboard::start(&plugin, &["j", "--as=reader"]).await;
    let job = dashboard
        .until_job(|job| job["logs"]["disabled"]["code"] != "unknown")
        .await;
    let forbidden = "forbidden forbidden forbidden forbidden";
    assert_eq!(codes(&job), format!("{forbidden} {forbidden}"));
    assert_eq!(job["podsHidden"], Value::Null);
    for screen in ["logs", "training"] {
        assert_eq!(job[screen]["disabled"]["code"], "forbidden", "{screen}");
    }
    let body = json!({"uid": job["uid"]});
    for action in ["suspend", "delete"] {
        let path = format!("/api/jobs/{}/{action}", dashboard.job);
        let (status, error) = dashboard.call("POST", &path, &body).await;
        assert_eq!(status, "403", "{action}: {error}");
        assert_eq!(error["error"]["code"], "forbidden");
    }
    let (status, error) = dashboard.call("GET", "/api/nodes", &json!({})).await;
    assert_eq!(status, "403", "{error}");
}

#[tokio::test]
async fn dashboard_needs_an_existing_job_and_a_loopback_address() {
    let plugin = Plugin::new().await;
    let result = plugin.run(&["dashboard", "absent"]).await;
    assert!(result.stderr.contains("\"absent\" not found"), "{result}");
    let result = plugin.run(&["dashboard", "--address=0.0.0.0"]).await;
    assert_eq!(result.code, Some(2), "{result}");
    assert!(
        result.stderr.contains("must be 127.0.0.1 or ::1"),
        "{result}"
    );
}
