use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tokio::{
    io::{AsyncReadExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A TCP proxy that loses responses: it forwards the request of its first connections but not the
/// response.
pub struct LossyProxy {
    /// Address that the proxy listens on.
    pub address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl LossyProxy {
    /// Starts a proxy that loses the responses of the first `loses` connections.
    pub async fn start(to: SocketAddr, loses: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let left = Arc::new(AtomicUsize::new(loses));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let less = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
                connections.spawn(pass(client, to, less.is_ok()));
            }
        });
        Self {
            address,
            _tasks: tasks,
        }
    }
}

async fn pass(mut client: TcpStream, to: SocketAddr, cut: bool) {
    let mut server = TcpStream::connect(to).await.unwrap();
    if !cut {
        copy_bidirectional(&mut client, &mut server).await.ok();
        return;
    }
    let (mut from_client, _) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let mut answer = [0; 4096];
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        // The first bytes of a response mean that the request was served.
        _ = from_server.read(&mut answer) => {}
    }
}
