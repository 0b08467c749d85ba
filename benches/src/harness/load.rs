//! Load: clients that call as fast as they are answered, and clients that call at a given pace, answered or not.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use futures::future::join_all;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

use crate::harness::{
    http::Connection,
    machine::{self, CLIENT_CORE},
    stats::quantile,
};

/// A client: whence it calls, and what it sends.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Its address.
    pub from: Ipv4Addr,
    /// Its request.
    pub request: Vec<u8>,
}

/// Results of the clients.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How long each answer took, in milliseconds, sorted.
    pub times: Vec<f64>,
    /// Calls that were not answered with success.
    pub errors: usize,
    /// How long they called.
    pub seconds: f64,
}

impl Seen {
    /// Calls answered per second.
    pub fn rate(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let answered = self.times.len() as f64;
        answered / self.seconds
    }

    /// Quantile of the times.
    pub fn quantile(&self, q: f64) -> f64 {
        quantile(&self.times, q)
    }
}

/// Each caller calls again as soon as it is answered.
pub fn closed(callers: Vec<Caller>, to: SocketAddr, lasting: Duration) -> Result<Seen> {
    on_own_core(async move {
        let connect = callers
            .iter()
            .map(|caller| Connection::open(caller.from, to));
        let connections: Result<Vec<_>> = join_all(connect).await.into_iter().collect();
        let requests = callers.iter().map(|caller| caller.request.clone());
        calling(connections?.into_iter().zip(requests), lasting).await
    })
}

/// Each connection calls with its request again as soon as it is answered.
pub async fn calling<S>(
    connections: impl Iterator<Item = (Connection<S>, Vec<u8>)>,
    lasting: Duration,
) -> Result<Seen>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let began = Instant::now();
    let mut all = JoinSet::new();
    for (mut connection, request) in connections {
        all.spawn(async move {
            let mut times = Vec::with_capacity(1 << 16);
            while began.elapsed() < lasting {
                let sent = Instant::now();
                connection.call(&request).await?;
                times.push(sent.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(times)
        });
    }
    let mut seen = Seen::default();
    while let Some(times) = all.join_next().await {
        seen.times.extend(times??);
    }
    seen.seconds = began.elapsed().as_secs_f64();
    Ok(seen)
}

/// Each caller calls once a second, over a new connection or one that it keeps. Times count from when the call was due.
pub fn open(callers: Vec<Caller>, to: SocketAddr, lasting: Duration, keep: bool) -> Result<Seen> {
    on_own_core(async move {
        let began = Instant::now() + Duration::from_millis(200);
        let many = u32::try_from(callers.len())?;
        let mut all = JoinSet::new();
        for (i, caller) in (0..many).zip(callers) {
            all.spawn(async move {
                let (mut times, mut errors) = (Vec::new(), 0);
                let mut due = began + Duration::from_secs(1) * i / many;
                let mut kept = None;
                while due < began + lasting {
                    tokio::time::sleep_until(due.into()).await;
                    match poll(&caller, to, &mut kept, keep).await {
                        Ok(()) => times.push(due.elapsed().as_secs_f64() * 1e3),
                        Err(_) => errors += 1,
                    }
                    due += Duration::from_secs(1);
                }
                (times, errors)
            });
        }
        let mut seen = Seen {
            seconds: lasting.as_secs_f64(),
            ..Seen::default()
        };
        while let Some(one) = all.join_next().await {
            let (times, errors) = one?;
            seen.times.extend(times);
            seen.errors += errors;
        }
        Ok(seen)
    })
}

async fn poll(
    caller: &Caller,
    to: SocketAddr,
    kept: &mut Option<Connection>,
    keep: bool,
) -> Result<()> {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => Connection::open(caller.from, to).await?,
    };
    connection.call(&caller.request).await?;
    if keep {
        *kept = Some(connection);
    }
    Ok(())
}

/// Runs clients on a thread of their own that keeps to its core.
pub fn on_own_core(clients: impl Future<Output = Result<Seen>> + Send + 'static) -> Result<Seen> {
    let run = move || {
        machine::pin(CLIENT_CORE)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let mut seen = runtime.block_on(clients)?;
        seen.times.sort_by(f64::total_cmp);
        Ok(seen)
    };
    let thread = std::thread::Builder::new()
        .name("clients".to_owned())
        .spawn(run);
    let joined = thread.context("cannot start a thread")?.join();
    joined.map_err(|_| anyhow!("the clients panicked"))?
}
