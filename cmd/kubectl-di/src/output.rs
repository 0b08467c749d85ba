use std::io::{self, Write};
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};

use di_client::Cluster;
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

/// Tells what went wrong, as kubectl does.
pub fn report(error: &anyhow::Error) {
    match error.downcast_ref::<di_client::Error>() {
        Some(di_client::Error::Server(_) | di_client::Error::Invalid { .. }) => {
            eprintln!("{error}");
        }
        // These name their cause themselves.
        Some(_) => eprintln!("error: {error}"),
        None => eprintln!("error: {error:#}"),
    }
}

/// Tells why pods are missing in what is shown.
pub fn warn_unseen(why: &di_client::Error) {
    eprintln!("Warning: only what is planned is shown: {why}");
}

/// An object by its kind and name, as `dijob.diengine.opendilab.org/cartpole`.
pub fn title(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    let name = name.or(object["metadata"]["generateName"].as_str());
    format!("{}/{}", kind(object), name.unwrap_or_default())
}

/// The kind of an object, as `dijob.diengine.opendilab.org`; the core group has no name.
pub fn kind(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    match object["apiVersion"]
        .as_str()
        .and_then(|v| v.split_once('/'))
    {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// Prints something as JSON.
pub fn json(out: &mut impl Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{value:#}")
}

/// Prints something as YAML; several documents in a row need `---` between them.
pub fn yaml(out: &mut impl Write, value: &Value) -> io::Result<()> {
    let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
    writeln!(out, "{}", text.trim_end())
}

/// An object without what only servers read; nobody wants it on a screen.
pub fn presentable(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// Objects as kubectl lists them.
pub fn list(items: Vec<Value>) -> Value {
    let items: Vec<_> = items.into_iter().map(presentable).collect();
    list_whole(&items)
}

/// The same, with all that is in them.
pub fn list_whole(items: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": items,
    })
}

/// Waits until a watch has lasted as long as it may, or nobody reads it any more.
pub async fn seen_enough(cluster: &Cluster) {
    tokio::select! {
        () = closed() => {}
        () = cluster.limit() => {}
    }
}

/// Resolves once the reader of our output is gone, as `head` is when it has seen enough: else that shows at the next write only.
#[cfg(unix)]
pub async fn closed() {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(stdout) => reader_gone(stdout).await,
        Err(_) => std::future::pending().await,
    }
}

/// Windows tells of it at the next write only.
#[cfg(not(unix))]
pub async fn closed() {
    std::future::pending().await
}

#[cfg(unix)]
async fn reader_gone(out: OwnedFd) {
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own, which the end of the process does not wait for.
    std::thread::spawn(move || {
        // Asked for nothing, it tells of hang-ups and errors alone.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
        // Nobody waits any more: all the same.
        tell.send(()).ok();
    });
    told.await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_without_a_write() {
        use std::time::Duration;

        use tokio::time::timeout;

        let (reader, writer) = io::pipe().unwrap();
        let mut gone = std::pin::pin!(reader_gone(writer.into()));
        let early = timeout(Duration::from_millis(50), &mut gone).await;
        assert!(early.is_err(), "the reader is there");
        drop(reader);
        timeout(Duration::from_secs(10), gone).await.unwrap();
    }

    #[test]
    fn objects_are_called_by_kind_group_and_name() {
        let job = json!({"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "metadata": {"name": "x"}});
        assert_eq!(title(&job), "dijob.diengine.opendilab.org/x");
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
        assert_eq!(title(&map), "configmap/x-");
    }

    #[test]
    fn yaml_comes_back_as_it_was() {
        let value = json!({
            "octal": "0644", "bool": "yes", "null": "null", "number": "1.0", "empty": "",
            "lines": "a\n b\n", "colon": "a: b", "hash": "a #b", "list": [[], {}, ["- x"]],
            "time": "2026-01-01T00:00:00Z", "exp": "1e3", "hex": "0x10", "tilde": "~", "n": "n",
        });
        let mut text = Vec::new();
        yaml(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        let documents = di_client::manifest::parse("-", &text).unwrap();
        assert_eq!(documents[0].object, value, "{text}");
    }
}
