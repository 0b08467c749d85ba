use std::{
    io::{self, ErrorKind},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::{
    Error, Result, chain,
    distributed::{
        connection::{Connection, Message},
        process_group::TcpProcessGroup,
        rank_config::{RankConfig, Timeouts},
    },
};

/// Interval between two accepts of rank 0.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);
/// Delay before another rank reconnects.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the first message of a connection. A slower rank connects again.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);

impl TcpProcessGroup {
    /// Joins the other ranks at the port of rank 0.
    pub fn rendezvous(config: &RankConfig, rank: u32, timeouts: Timeouts) -> Result<Self> {
        if rank > 0 {
            return Self::join_group(config, rank, timeouts);
        }
        let port = config.master_port;
        let listener = TcpListener::bind(("0.0.0.0", port))
            .map_err(|source| Error::Listen { port, source })?;
        Self::accept_ranks(&listener, config, timeouts)
    }

    /// On rank 0: waits for all other ranks.
    pub fn accept_ranks(
        listener: &TcpListener,
        config: &RankConfig,
        timeouts: Timeouts,
    ) -> Result<Self> {
        let mut joined: Vec<Option<Connection>> = (1..config.world_size).map(|_| None).collect();
        let deadline = Instant::now() + timeouts.rendezvous;
        listener.set_nonblocking(true).map_err(Error::Serve)?;
        if !joined.is_empty() {
            tracing::info!("rank 0 of {} waits for the others", config.world_size);
        }
        while joined.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, from)) => match handshake(stream, config, timeouts) {
                    // A restarted rank replaces its earlier connection.
                    Ok(connection) => {
                        tracing::info!("rank {} has joined", connection.rank);
                        let index = connection.rank as usize - 1;
                        joined[index] = Some(connection);
                    }
                    Err(error) => tracing::warn!(
                        "rejected a connection from {from}, not a rank of this learner group: {error}"
                    ),
                },
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(Error::Serve(error));
                }
                Err(_) if Instant::now() >= deadline => {
                    return Err(missing_ranks(&joined, timeouts));
                }
                Err(_) => sleep(ACCEPT_INTERVAL),
            }
        }
        let mut connections: Vec<_> = joined.into_iter().flatten().collect();
        connections
            .iter_mut()
            .try_for_each(|connection| connection.send_message(&Message::Joined))?;
        Ok(Self::new(0, config.world_size, connections, timeouts))
    }

    /// On another rank: connects to rank 0 and waits until all ranks have joined.
    pub fn join_group(config: &RankConfig, rank: u32, timeouts: Timeouts) -> Result<Self> {
        let deadline = Instant::now() + timeouts.rendezvous;
        let RankConfig {
            master_addr,
            master_port,
            ..
        } = config;
        tracing::info!("rank {rank} connects to rank 0 at {master_addr}:{master_port}");
        loop {
            match connect_rank(config, rank, timeouts, deadline) {
                Ok(connection) => {
                    return Ok(Self::new(
                        rank,
                        config.world_size,
                        vec![connection],
                        timeouts,
                    ));
                }
                Err(error) if Instant::now() >= deadline => {
                    return Err(Error::RendezvousTimeout {
                        seconds: timeouts.rendezvous.as_secs(),
                        reason: format!("{master_addr}:{master_port}: {error}"),
                    });
                }
                Err(error) => {
                    tracing::debug!("rank {rank} retries: {error}");
                    sleep(RECONNECT_DELAY);
                }
            }
        }
    }
}

/// Accepts a connection from a rank of this learner group.
fn handshake(stream: TcpStream, config: &RankConfig, timeouts: Timeouts) -> io::Result<Connection> {
    let join = Connection::new(0, stream.try_clone()?, JOIN_TIMEOUT)?.recv_message();
    match join.map_err(connection_error)? {
        Message::Join {
            group_name,
            world_size,
            rank,
        } if group_name == config.group_name
            && world_size == config.world_size
            && (1..world_size).contains(&rank) =>
        {
            Connection::new(rank, stream, timeouts.message)
        }
        other => Err(io::Error::other(format!(
            "unexpected first message {other:?}"
        ))),
    }
}

/// Connects to rank 0 and waits for `Joined`.
fn connect_rank(
    config: &RankConfig,
    rank: u32,
    timeouts: Timeouts,
    deadline: Instant,
) -> io::Result<Connection> {
    let mut connection = Err(io::Error::other("the name does not resolve to an address"));
    for address in (&*config.master_addr, config.master_port).to_socket_addrs()? {
        connection = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        if connection.is_ok() {
            break;
        }
    }
    let mut connection = Connection::new(0, connection?, timeouts.message)?;
    let join = Message::Join {
        group_name: config.group_name.clone(),
        world_size: config.world_size,
        rank,
    };
    connection.send_message(&join).map_err(connection_error)?;
    let left = deadline.saturating_duration_since(Instant::now());
    if !connection.is_readable(left).map_err(connection_error)? {
        return Err(io::Error::other("not all ranks have joined"));
    }
    match connection.recv_message().map_err(connection_error)? {
        Message::Joined => Ok(connection),
        other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
    }
}

fn missing_ranks(joined: &[Option<Connection>], timeouts: Timeouts) -> Error {
    let missing = (1..).zip(joined).filter(|(_, rank)| rank.is_none());
    let missing: Vec<_> = missing
        .map(|(rank, _): (u32, _)| rank.to_string())
        .collect();
    Error::RendezvousTimeout {
        seconds: timeouts.rendezvous.as_secs(),
        reason: format!("rank {} did not join", missing.join(", ")),
    }
}

/// During the rendezvous ranks are unknown, so only the connection error is useful.
fn connection_error(error: Error) -> io::Error {
    match error {
        Error::RankLost { source, .. } => source,
        other => io::Error::other(chain(&other)),
    }
}
