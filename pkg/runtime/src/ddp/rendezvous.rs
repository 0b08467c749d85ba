use std::{
    io::{self, ErrorKind},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    Group, Limits, RankConfig,
    link::{Link, Message},
};
use crate::{Error, Result, chain};

/// How often rank 0 looks for who has come.
const LOOK: Duration = Duration::from_millis(20);
/// How long the others wait until they try again.
const AGAIN: Duration = Duration::from_millis(250);
/// How long a connection may take to come up.
const CONNECT: Duration = Duration::from_secs(3);
/// How long who connects may take to say who it is. Whoever takes longer connects again.
const HELLO: Duration = Duration::from_secs(2);

impl Group {
    /// Meets the other ranks at the port of rank 0.
    pub fn rendezvous(place: &RankConfig, rank: u32, limits: Limits) -> Result<Self> {
        if rank > 0 {
            return Self::join_group(place, rank, limits);
        }
        let port = place.port;
        let listener = TcpListener::bind(("0.0.0.0", port))
            .map_err(|source| Error::Listen { port, source })?;
        Self::accept_ranks(&listener, place, limits)
    }

    /// As rank 0: waits for all others.
    pub fn accept_ranks(listener: &TcpListener, place: &RankConfig, limits: Limits) -> Result<Self> {
        let mut seats: Vec<Option<Link>> = (1..place.world).map(|_| None).collect();
        let deadline = Instant::now() + limits.meet;
        listener.set_nonblocking(true).map_err(Error::Serve)?;
        if !seats.is_empty() {
            tracing::info!("rank 0 of {} waits for the others", place.world);
        }
        while seats.iter().any(Option::is_none) {
            match listener.accept() {
                Ok((stream, from)) => match handshake(stream, place, limits) {
                    // One that was started anew takes the place that it had.
                    Ok(link) => {
                        tracing::info!("rank {} is there", link.rank);
                        let seat = link.rank as usize - 1;
                        seats[seat] = Some(link);
                    }
                    Err(error) => tracing::warn!("{from} is not one of the ranks: {error}"),
                },
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(Error::Serve(error));
                }
                Err(_) if Instant::now() >= deadline => return Err(missing_ranks(&seats, limits)),
                Err(_) => sleep(LOOK),
            }
        }
        let mut links: Vec<_> = seats.into_iter().flatten().collect();
        links
            .iter_mut()
            .try_for_each(|link| link.send_message(&Message::Welcome))?;
        Ok(Self::new(0, place.world, links, limits))
    }

    /// As another rank: connects to rank 0, and waits until all are there.
    pub fn join_group(place: &RankConfig, rank: u32, limits: Limits) -> Result<Self> {
        let deadline = Instant::now() + limits.meet;
        let RankConfig { master, port, .. } = place;
        tracing::info!("rank {rank} meets the others at {master}:{port}");
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
                    tracing::debug!("rank {rank} tries again: {error}");
                    sleep(AGAIN);
                }
            }
        }
    }
}

/// Lets in who is a rank of this unit.
fn handshake(stream: TcpStream, place: &RankConfig, limits: Limits) -> io::Result<Link> {
    let said = Link::new(0, stream.try_clone()?, HELLO)?.recv_message();
    match said.map_err(connection_error)? {
        Message::Hello { unit, world, rank }
            if unit == place.unit && world == place.world && (1..world).contains(&rank) =>
        {
            Link::new(rank, stream, limits.step)
        }
        other => Err(io::Error::other(format!("it says {other:?}"))),
    }
}

/// Connects, and waits to be welcome.
fn connect_rank(place: &RankConfig, rank: u32, limits: Limits, deadline: Instant) -> io::Result<Link> {
    let mut tried = Err(io::Error::other("the name has no address"));
    for address in (&*place.master, place.port).to_socket_addrs()? {
        tried = TcpStream::connect_timeout(&address, CONNECT);
        if tried.is_ok() {
            break;
        }
    }
    let mut link = Link::new(0, tried?, limits.step)?;
    let hello = Message::Hello {
        unit: place.unit.clone(),
        world: place.world,
        rank,
    };
    link.send_message(&hello).map_err(connection_error)?;
    let left = deadline.saturating_duration_since(Instant::now());
    if !link.is_readable(left).map_err(connection_error)? {
        return Err(io::Error::other("not all ranks have come"));
    }
    match link.recv_message().map_err(connection_error)? {
        Message::Welcome => Ok(link),
        other => Err(io::Error::other(format!("it says {other:?}"))),
    }
}

fn missing_ranks(seats: &[Option<Link>], limits: Limits) -> Error {
    let seats = (1..).zip(seats).filter(|(_, seat)| seat.is_none());
    let missing: Vec<_> = seats.map(|(rank, _): (u32, _)| rank.to_string()).collect();
    Error::NotMet {
        seconds: limits.meet.as_secs(),
        reason: format!("rank {} did not come", missing.join(", ")),
    }
}

/// ProcessGroup have no numbers yet, so only what became of the connection counts.
fn connection_error(error: Error) -> io::Error {
    match error {
        Error::RankLost { source, .. } => source,
        other => io::Error::other(chain(&other)),
    }
}
