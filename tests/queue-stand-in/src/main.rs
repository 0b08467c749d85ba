//! Runs the stand-in for Kueue's queue controller until it is killed.

use clap::Parser;
use di_queue_stand_in::QueueController;
use kube::Client;

#[derive(Parser)]
struct Args {
    /// Namespace of the Workloads.
    #[arg(long)]
    namespace: String,
    /// Version of Kueue's API.
    #[arg(long, default_value = "v1beta2")]
    version: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> kube::Result<()> {
    let args = Args::parse();
    // Fails if a provider is installed already.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let client = Client::try_default().await?;
    let _controller = QueueController::start(client, &args.namespace, &args.version);
    std::future::pending().await
}
