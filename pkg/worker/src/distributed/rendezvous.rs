use std::{
    io::{self, ErrorKind},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::distributed::{
    connection::{Link, Message},
    process_group::Group,
    rank_config::{Limits, RankConfig},
};
use crate::{Error, Result, chain};

/// Interval between two accepts of rank 0.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(20);
/// Delay before another rank reconnects.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// Timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the first message of a connection. A slower rank connects again.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

impl Group {
    /// Joins the other ranks at the port of rank 0.
    pub fn rendezvous(place: &RankConfig, rank: u32, limits: Limits) -> Result<Self> {
        if rank > 0 {
            return Self::join_group(place, rank, limits);
        }
        let port = place.port;
        let listener = TcpListener::bind(("0.0.0.0", port))
            .map_err(|source| Error::Listen { port, source })?;
        Self::accept_ranks(&listener, place, limits)
    }

    /// On rank 0: waits for all other ranks.
    pub fn accept_ranks(
        listener: &TcpListener,
        place: &RankConfig,
        limits: Limits,
    ) -> Result<Self> {
        let mut seats: Vec<Option<Link>> = (1..place.world).map(|_| None).collect();
        let deadline = Instant::now() + limits.meet;
        listener.set_nonblocking(true).map_err(Error::Serve)?;
        if !seats.is_empty() {
            tracing::info!("rank 0 of {} waits for the others", place.world);
        }
        while seats.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, from)) => match handshake(stream, place, limits) {
                    // A restarted rank replaces its earlier connection.
                    Ok(link) => {
                        tracing::info!("rank {} has joined", link.rank);
                        let seat = link.rank as usize - 1;
                        seats[seat] = Some(link);
                    }
                    Err(error) => tracing::warn!(
                        "rejected a connection from {from}, not a rank of this learner group: {error}"
                    ),
                },
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(Error::Serve(error));
                }
                Err(_) if Instant::now() >= deadline => return Err(missing_ranks(&seats, limits)),
                Err(_) => sleep(ACCEPT_INTERVAL),
            }
        }
        let mut links: Vec<_> = seats.into_iter().flatten().collect();
        links
            .iter_mut()
            .try_for_each(|link| link.send_message(&Message::Welcome))?;
        Ok(Self::new(0, place.world, links, limits))
    }

    /// On another rank: connects to rank 0 and waits until all ranks have joined.
    pub fn join_group(place: &RankConfig, rank: u32, limits: Limits) -> Result<Self> {
        let deadline = Instant::now() + limits.meet;
        let RankConfig { master, port, .. } = place;
        tracing::info!("rank {rank} connects to rank 0 at {master}:{port}");
        loop {
            match connect_rank(place, rank, limits, deadline) {
                Ok(link) => return Ok(Self::new(rank, place.world, vec![link], limits)),
                Err(error) if Instant::now() >= deadline => {
                    return Err(Error::NotMet {
                        seconds: limits.meet.as_secs(),
                        reason: format!("{master}:{port}: {error}"),
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
fn handshake(stream: TcpStream, place: &RankConfig, limits: Limits) -> io::Result<Link> {
    let hello = Link::new(0, stream.try_clone()?, HELLO_TIMEOUT)?.recv_message();
    match hello.map_err(connection_error)? {
        Message::Hello { unit, world, rank }
            if unit == place.unit && world == place.world && (1..world).contains(&rank) =>
        {
            Link::new(rank, stream, limits.step)
        }
        other => Err(io::Error::other(format!(
            "unexpected first message {other:?}"
        ))),
    }
}

/// Connects to rank 0 and waits for `Welcome`.
fn connect_rank(
    place: &RankConfig,
    rank: u32,
    limits: Limits,
    deadline: Instant,
) -> io::Result<Link> {
    let mut connection = Err(io::Error::other("the name does not resolve to an address"));
    for address in (&*place.master, place.port).to_socket_addrs()? {
        connection = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        if connection.is_ok() {
            break;
        }
    }
    let mut link = Link::new(0, connection?, limits.step)?;
    let hello = Message::Hello {
        unit: place.unit.clone(),
        world: place.world,
        rank,
    };
    link.send_message(&hello).map_err(connection_error)?;
    let left = deadline.saturating_duration_since(Instant::now());
    if !link.is_readable(left).map_err(connection_error)? {
        return Err(io::Error::other("not all ranks have joined"));
    }
    match link.recv_message().map_err(connection_error)? {
        Message::Welcome => Ok(link),
        other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
    }
}

fn missing_ranks(seats: &[Option<Link>], limits: Limits) -> Error {
    let seats = (1..).zip(seats).filter(|(_, seat)| seat.is_none());
    let missing: Vec<_> = seats.map(|(rank, _): (u32, _)| rank.to_string()).collect();
    Error::NotMet {
        seconds: limits.meet.as_secs(),
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
