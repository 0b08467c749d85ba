//! Tests over real connections, with a fake API server.

mod fake_cluster;
mod live;
mod requests;

use std::future::pending;

use di_client::ConnectOptions;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use super::*;
use fake_cluster::FakeCluster;

const LONG: Duration = Duration::from_secs(30);

/// A running dashboard with the secrets of its page.
struct Running {
    address: SocketAddr,
    token: String,
    cookie: String,
}

/// A complete response.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    /// The status and the code of an error response.
    fn error(&self) -> (u16, String) {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let code = body["error"]["code"].as_str().unwrap_or_default();
        (self.status, code.to_owned())
    }

    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Connects to the fake API server with the namespace `rl`.
async fn connect(fake: &FakeCluster) -> Cluster {
    let options = ConnectOptions {
        kubeconfig: Some("/dev/null".into()),
        server: Some(format!("http://{}", fake.address)),
        namespace: Some("rl".to_owned()),
        ..ConnectOptions::default()
    };
    Cluster::connect(&options, |_| {}).await.unwrap()
}

/// The options of a dashboard on a free port.
fn options() -> Options {
    Options {
        address: [127, 0, 0, 1].into(),
        port: 0,
        all_namespaces: false,
        read_only: false,
    }
}

impl Running {
    async fn start(fake: &FakeCluster) -> Self {
        Self::start_with(fake, options(), LIMITS).await
    }

    async fn start_with(fake: &FakeCluster, options: Options, limits: Limits) -> Self {
        let cluster = connect(fake).await;
        let mut dashboard = Dashboard::bind(cluster, options).await.unwrap();
        dashboard.limits = limits;
        let shared = dashboard.shared.clone();
        tokio::spawn(dashboard.serve(pending()));
        let set_cookie = shared.set_cookie();
        let (cookie, _) = set_cookie.split_once(';').unwrap();
        Self {
            address: shared.address,
            token: shared.token.clone(),
            cookie: cookie.to_owned(),
        }
    }

    /// The headers of the own page.
    fn own_headers(&self) -> String {
        let Self {
            address,
            token,
            cookie,
        } = self;
        format!(
            "Host: {address}\r\nOrigin: http://{address}\r\nCookie: other=1; {cookie}\r\n\
             Content-Type: application/json\r\nX-DI-Token: {token}\r\n"
        )
    }

    /// Sends a request line with these headers and a body.
    async fn send(&self, line: &str, headers: &str, body: &str) -> Reply {
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.1\r\n{headers}Content-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        let text = self.send_bytes(request.as_bytes()).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Reply {
            status: status.unwrap_or(0),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// Sends a request as the own page does.
    async fn send_own(&self, line: &str, body: &str) -> Reply {
        self.send(line, &self.own_headers(), body).await
    }

    /// Sends bytes and reads until the server closes the connection.
    async fn send_bytes(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // The server may close the connection before it has read everything.
        stream.write_all(bytes).await.ok();
        let mut response = Vec::new();
        let read = timeout(LONG, stream.read_to_end(&mut response)).await;
        read.expect("the connection is closed").ok();
        String::from_utf8(response).unwrap()
    }

    /// Opens a stream of lines. HTTP/1.0 has no chunks.
    async fn open(&self, path: &str) -> Lines {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\n{}\r\n", self.own_headers());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut lines = Lines(BufReader::new(stream));
        let status = lines.next().await;
        assert!(status.contains(" 200 "), "{status}");
        while !lines.next().await.is_empty() {}
        lines
    }
}

/// The lines of a response that does not end.
struct Lines(BufReader<TcpStream>);

impl Lines {
    /// The next line without its end. Empty at the end of the response.
    async fn next(&mut self) -> String {
        let mut line = String::new();
        let read = timeout(LONG, self.0.read_line(&mut line)).await;
        read.expect("a line arrives in time").unwrap();
        line.trim_end().to_owned()
    }

    /// Reads server-sent events until one has this name.
    async fn next_event(&mut self, name: &str) -> Value {
        loop {
            let line = self.next().await;
            let Some(found) = line.strip_prefix("event: ") else {
                continue;
            };
            let data = self.next().await;
            if found == name {
                let data = data.strip_prefix("data: ").unwrap();
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}
