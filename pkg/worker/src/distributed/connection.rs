use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, learner::settings::Settings, protocol::wire::LearnerTask};

/// A message between ranks, apart from gradients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// The first message of a connection.
    Join {
        group_name: String,
        world_size: u32,
        rank: u32,
    },
    /// All ranks have joined.
    Joined,
    /// A task and its number.
    Begin(u64, Box<GroupTask>),
    /// The task has arrived.
    Ack(u64),
    /// The task is loaded.
    Ready(u64),
    /// The task cannot be loaded.
    Refused(u64, String),
    /// All ranks are ready.
    Go(u64),
    /// The task is cancelled.
    Cancel(u64),
    /// A rank is lost, and with it the learner group.
    Lost { rank: u32, reason: String },
}

/// A task with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct GroupTask {
    pub(super) task: LearnerTask,
    pub(super) settings: Settings,
}

impl GroupTask {
    /// The call after a JSON round trip, as the other ranks receive it.
    pub(super) fn as_sent(&self) -> Result<Self> {
        serde_json::to_vec(self)
            .and_then(|text| serde_json::from_slice(&text))
            .map_err(|error| Error::BadTask(error.to_string()))
    }
}

/// The connection to another rank.
#[derive(Debug)]
pub(super) struct Connection {
    /// The rank at the other end.
    pub(super) rank: u32,
    stream: TcpStream,
    buffer: Vec<u8>,
}

const MESSAGE: u8 = 1;
const NUMBERS: u8 = 2;
/// Length of the header: kind and payload length.
const HEADER: usize = 1 + 4;
/// Maximum payload length.
const MAX_PAYLOAD: usize = 64 << 20;
const FOREIGN: &str = "the peer does not speak the rank protocol";

impl Connection {
    /// A connection whose reads and writes time out after `limit`.
    pub(super) fn new(rank: u32, stream: TcpStream, limit: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_read_timeout(Some(limit))?;
        Ok(Self {
            rank,
            stream,
            buffer: Vec::new(),
        })
    }

    /// Sends a message.
    pub(super) fn send_message(&mut self, message: &Message) -> Result<()> {
        let sent = serde_json::to_vec(message)
            .map_err(io::Error::other)
            .and_then(|text| self.send_frame(MESSAGE, text));
        sent.map_err(|source| self.rank_lost(source))
    }

    /// Sends gradients.
    pub(super) fn send_tensor(&mut self, numbers: &[f64]) -> Result<()> {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        let sent = self.send_frame(NUMBERS, bytes);
        sent.map_err(|source| self.rank_lost(source))
    }

    /// Whether a message or the end of the connection can be read within this time.
    pub(super) fn is_readable(&mut self, within: Duration) -> Result<bool> {
        // A zero timeout would block forever.
        let within = within.max(Duration::from_millis(1));
        let limit = self.stream.read_timeout();
        let readable = limit.and_then(|limit| {
            self.stream.set_read_timeout(Some(within))?;
            let peeked = self.stream.peek(&mut [0]);
            self.stream.set_read_timeout(limit)?;
            match peeked {
                Ok(_) => Ok(true),
                Err(error) if is_timeout(&error) => Ok(false),
                Err(error) => Err(error),
            }
        });
        readable.map_err(|source| self.rank_lost(source))
    }

    /// Receives the next message.
    pub(super) fn recv_message(&mut self) -> Result<Message> {
        match self.recv_frame()? {
            Some(message) => Ok(message),
            None => Err(self.protocol_error("numbers")),
        }
    }

    /// Receives `count` numbers and passes each with its index to `with`.
    pub(super) fn recv_tensor(
        &mut self,
        count: usize,
        mut with: impl FnMut(usize, f64),
    ) -> Result<()> {
        if let Some(message) = self.recv_frame()? {
            return Err(self.protocol_error(format_args!("{message:?}")));
        }
        let (numbers, rest) = self.buffer.as_chunks();
        if numbers.len() != count || !rest.is_empty() {
            return Err(self.protocol_error("another number of parameters"));
        }
        for (index, bytes) in numbers.iter().enumerate() {
            with(index, f64::from_le_bytes(*bytes));
        }
        Ok(())
    }

    /// The other rank sent an unexpected message.
    pub(super) fn protocol_error(&self, message: impl std::fmt::Display) -> Error {
        self.rank_lost(invalid_data(&format!("unexpected message: {message}")))
    }

    fn rank_lost(&self, source: io::Error) -> Error {
        Error::RankLost {
            rank: self.rank,
            source,
        }
    }

    fn send_frame(&mut self, kind: u8, payload: impl IntoIterator<Item = u8>) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.extend([kind; HEADER]);
        self.buffer.extend(payload);
        let length = u32::try_from(self.buffer.len() - HEADER).map_err(io::Error::other)?;
        self.buffer[1..HEADER].copy_from_slice(&length.to_le_bytes());
        self.stream.write_all(&self.buffer)
    }

    /// Receives a message, or numbers into the buffer. A `Lost` message is an error.
    fn recv_frame(&mut self) -> Result<Option<Message>> {
        let message = self.read_payload().and_then(|kind| match kind {
            NUMBERS => Ok(None),
            _ => serde_json::from_slice(&self.buffer)
                .map(Some)
                .map_err(|_| invalid_data(FOREIGN)),
        });
        match message.map_err(|source| self.rank_lost(source))? {
            Some(Message::Lost { rank, reason }) => Err(Error::RankLost {
                rank,
                source: io::Error::other(reason),
            }),
            message => Ok(message),
        }
    }

    /// Reads the next payload into the buffer; returns its kind.
    fn read_payload(&mut self) -> io::Result<u8> {
        let mut header = [0; HEADER];
        self.read_exactly(&mut header)?;
        let [kind, length @ ..] = header;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_PAYLOAD || ![MESSAGE, NUMBERS].contains(&kind) {
            return Err(invalid_data(FOREIGN));
        }
        let mut payload = std::mem::take(&mut self.buffer);
        payload.resize(length, 0);
        let read = self.read_exactly(&mut payload);
        self.buffer = payload;
        read.map(|()| kind)
    }

    fn read_exactly(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(buffer).map_err(|error| {
            if error.kind() == ErrorKind::UnexpectedEof {
                return io::Error::new(ErrorKind::UnexpectedEof, "the connection was closed");
            }
            if !is_timeout(&error) {
                return error;
            }
            let limit = self.stream.read_timeout().ok().flatten();
            let seconds = limit.unwrap_or_default().as_secs();
            let timeout = format!("no message for {seconds} s");
            io::Error::new(ErrorKind::TimedOut, timeout)
        })
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn invalid_data(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}
