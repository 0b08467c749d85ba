//! B21: `kubectl di dashboard` with a job of 2,000 replicas.

use std::{
    pin::pin,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use kube::{ResourceExt, api::ListParams};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::TcpStream,
    process::{Child, ChildStdout, Command},
    time::{interval, sleep, timeout},
};

use crate::harness::{
    calls::{Call, make_all},
    child::sibling,
    cluster::{Cluster, Space},
    fleet::{job_name, manifest, new_pods, pod_status, replica_address, running_status},
    machine,
    scale::{PATIENCE, Scale},
    stats::{At, Findings, spread},
};

const REPLICAS: usize = 2000;
const AT_ONCE: usize = 32;
/// Pods change at this rate while frames are counted.
const CHANGES_PER_SECOND: u64 = 100;
const OURS: &str = "dashboard";
const LISTS: &str = "lists of all pods, one after the other";
const FRAMES: &str = "states of all replicas";
const FRAMES_LIMIT: f64 = 4.0;
const START: &str = "time from the start of the command to the list of jobs";
const START_LIMIT: f64 = 500.0;
const RESIDENT: &str = "resident memory";
const RESIDENT_LIMIT: f64 = 60.0;

fn at(what: &'static str, unit: &'static str) -> At {
    At {
        benchmark: "B21",
        what,
        unit,
        case: format!("{REPLICAS} replicas"),
        x: REPLICAS,
    }
}

/// Runs it.
pub async fn run(scale: &Scale, found: &mut Findings) -> Result<()> {
    let cluster = Cluster::start().await?;
    let space = cluster.space().await?;
    let pods = create_large_job(&space).await?;
    for repetition in 0..scale.repetitions {
        let began = Instant::now();
        let dashboard = Dashboard::start(&cluster, &space).await?;
        let namespace = &space.name;
        let mut list = dashboard
            .watch(&format!("namespace={namespace}"), "jobs")
            .await?;
        list.next().await?;
        let started = began.elapsed().as_secs_f64() * 1e3;
        found.add(&at(START, "ms"), OURS, started);

        let query = format!("namespace={namespace}&job={namespace}/{}", job_name(0));
        let mut replicas = dashboard.watch(&query, "replicas").await?;
        replicas.next().await?;
        let changes = tokio::spawn(change_pods(
            space.clone(),
            pods.clone(),
            repetition % 2 == 1,
        ));
        let frames = replicas.count_for(scale.storm).await?;
        let lists = count_lists(&space, scale.storm).await?;
        changes.abort();
        let per_second = |count: u32| f64::from(count) / scale.storm.as_secs_f64();
        found.add(&at(FRAMES, "a second"), OURS, per_second(frames));
        found.add(&at(FRAMES, "a second"), LISTS, per_second(lists));
        found.add(&at(RESIDENT, "MiB"), OURS, dashboard.usage()?.resident);
    }
    judge(found)
}

fn judge(found: &mut Findings) -> Result<()> {
    let median = |what| {
        let series = found.find("B21", what, &at(what, "").case, OURS);
        let series = series.context("nothing was measured")?;
        anyhow::Ok(spread(&series.values).median)
    };
    let (start, frames, resident) = (median(START)?, median(FRAMES)?, median(RESIDENT)?);
    let target = format!("{START}: < {START_LIMIT} ms");
    found.judge(
        "B21",
        &target,
        format!("{start:.0} ms"),
        start < START_LIMIT,
    );
    let target = format!("{FRAMES} a second: >= {FRAMES_LIMIT}");
    found.judge(
        "B21",
        &target,
        format!("{frames:.1}"),
        frames >= FRAMES_LIMIT,
    );
    let target = format!("{RESIDENT}: < {RESIDENT_LIMIT} MiB");
    let measured = format!("{resident:.0} MiB");
    found.judge("B21", &target, measured, resident < RESIDENT_LIMIT);
    Ok(())
}

/// Creates a running job with all its pods, and returns their names.
async fn create_large_job(space: &Space) -> Result<Vec<String>> {
    let mut job = manifest(&job_name(0))?;
    let status = running_status(&job, REPLICAS - 1)?;
    let jobs = space.jobs_path();
    Call::create(&jobs, &job)?.make(&space.client).await?;
    Call::status(&jobs, &job.name_any(), &json!(status))?
        .make(&space.client)
        .await?;
    job = space.jobs().get(&job.name_any()).await?;
    let (mut creates, mut statuses, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (number, pod) in new_pods(&job).iter().enumerate() {
        creates.push(Call::create(&space.pods_path(), pod)?);
        statuses.push(pod_change(space, &pod.name_any(), number, true)?);
        names.push(pod.name_any());
    }
    make_all(&space.client, creates, AT_ONCE).await?;
    make_all(&space.client, statuses, AT_ONCE).await?;
    Ok(names)
}

fn pod_change(space: &Space, name: &str, number: usize, ready: bool) -> Result<Call> {
    let status = json!(pod_status(replica_address(number), ready)?);
    Call::status(&space.pods_path(), name, &status)
}

/// Changes one pod after the other, without an end. Every other repetition makes them ready again.
async fn change_pods(space: Space, pods: Vec<String>, ready: bool) -> Result<()> {
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(CHANGES_PER_SECOND)?);
    for ready in [ready, !ready].into_iter().cycle() {
        for (number, name) in pods.iter().enumerate() {
            ticks.tick().await;
            let change = pod_change(&space, name, number, ready)?;
            change.make(&space.client).await?;
        }
    }
    Ok(())
}

/// The alternative: a page that asks for all pods again and again.
async fn count_lists(space: &Space, lasting: Duration) -> Result<u32> {
    let began = Instant::now();
    let mut lists = 0;
    while began.elapsed() < lasting {
        space.pods().list(&ListParams::default()).await?;
        lists += 1;
    }
    Ok(lists)
}

/// A running `kubectl di dashboard` with a session.
struct Dashboard {
    process: Child,
    /// Keeps the output of the process open.
    _output: Lines<BufReader<ChildStdout>>,
    address: String,
    cookie: String,
}

impl Dashboard {
    async fn start(cluster: &Cluster, space: &Space) -> Result<Self> {
        let mut process = Command::new(sibling("kubectl-di")?)
            .args(["--namespace", &space.name, "dashboard", "--no-browser"])
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("HOME", cluster.home())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start kubectl-di: run `make bench`, which builds it")?;
        let output = process.stdout.take().context("no output")?;
        let mut output = BufReader::new(output).lines();
        let url = output
            .next_line()
            .await?
            .context("no address was printed")?;
        let url = url
            .strip_prefix("http://")
            .and_then(|url| url.split_once("/#token="));
        let (address, token) = url.context("the printed address is none")?;
        let mut dashboard = Self {
            process,
            _output: output,
            address: address.to_owned(),
            cookie: String::new(),
        };
        let body = json!({"token": token}).to_string();
        let mut head = dashboard.send("POST /api/session", &body).await?;
        let cookie = loop {
            let line = head.next_line().await?.context("the session was refused")?;
            if let Some(cookie) = line.strip_prefix("set-cookie: ") {
                break cookie.split(';').next().unwrap_or_default().to_owned();
            }
        };
        dashboard.cookie = cookie;
        Ok(dashboard)
    }

    /// Sends a request as the page does, and returns the lines of the response.
    async fn send(&self, line: &str, body: &str) -> Result<Lines<BufReader<TcpStream>>> {
        let Self {
            address, cookie, ..
        } = self;
        let mut stream = TcpStream::connect(address).await?;
        let length = body.len();
        let request = format!(
            "{line} HTTP/1.0\r\nHost: {address}\r\nOrigin: http://{address}\r\nCookie: {cookie}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await?;
        Ok(BufReader::new(stream).lines())
    }

    /// Opens a stream of events, of which those with this name are read.
    async fn watch(&self, query: &str, name: &'static str) -> Result<Events> {
        let lines = self.send(&format!("GET /api/watch?{query}"), "").await?;
        Ok(Events { lines, name })
    }

    fn usage(&self) -> Result<machine::Usage> {
        machine::usage(self.process.id().context("the dashboard has ended")?)
    }
}

/// The events of one name in a stream.
struct Events {
    lines: Lines<BufReader<TcpStream>>,
    name: &'static str,
}

impl Events {
    /// Waits for the next event, with its data.
    async fn next(&mut self) -> Result<()> {
        let wanted = format!("event: {}", self.name);
        let read = async {
            while self.lines.next_line().await?.context("the stream ended")? != wanted {}
            self.lines
                .next_line()
                .await?
                .context("the event has no data")?;
            anyhow::Ok(())
        };
        timeout(PATIENCE, read).await.context("no event arrived")?
    }

    async fn count_for(&mut self, lasting: Duration) -> Result<u32> {
        let mut end = pin!(sleep(lasting));
        let mut count = 0;
        loop {
            tokio::select! {
                () = &mut end => return Ok(count),
                next = self.next() => next?,
            }
            count += 1;
        }
    }
}
