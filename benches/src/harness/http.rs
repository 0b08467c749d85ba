//! A small HTTP client, so that what is measured is the server and not the client. It sends requests that were made beforehand.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

/// A connection that is kept open.
pub struct Connection<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
}

/// Where the body of an answer begins in the buffer, and where it ends.
struct Head {
    status: u16,
    start: usize,
    end: usize,
}

/// A request as it goes over the wire.
pub fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("{method} {path} HTTP/1.1\r\nHost: di-server\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

impl Connection {
    /// Connects from one of this machine's loopback addresses: the endpoint knows its callers by their address.
    pub async fn open(from: Ipv4Addr, to: SocketAddr) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        // Thousands of short connections would else wait for their ports.
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let stream = socket.connect(to).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Calls over this stream.
    pub fn over(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(64 << 10),
        }
    }

    /// Sends a request and returns the body of the answer, which must be a success.
    pub async fn call(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.buffer.clear();
        self.stream.write_all(request).await?;
        // TLS may hold some of it back.
        self.stream.flush().await?;
        let mut head = None;
        loop {
            if head.is_none() {
                head = parse(&self.buffer)?;
            }
            if let Some(head) = &head
                && self.buffer.len() >= head.end
            {
                let body = &self.buffer[head.start..head.end];
                ensure!(
                    head.status == 200,
                    "answered {}: {}",
                    head.status,
                    String::from_utf8_lossy(body)
                );
                return Ok(body);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                bail!("the connection was closed");
            }
        }
    }
}

fn parse(buffer: &[u8]) -> Result<Option<Head>> {
    let Some(blank) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&buffer[..blank]).context("the head is not text")?;
    let status = head.get(9..12).and_then(|status| status.parse().ok());
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let found = name.eq_ignore_ascii_case("content-length");
        found.then(|| value.trim().parse::<usize>().ok())?
    });
    let start = blank + 4;
    Ok(Some(Head {
        status: status.context("the answer has no status")?,
        start,
        end: start + length.context("the answer has no Content-Length")?,
    }))
}
