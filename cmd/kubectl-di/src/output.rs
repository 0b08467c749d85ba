use std::io::{self, Write};
#[cfg(unix)]
use std::os::fd::{AsFd, OwnedFd};

use di_client::Cluster;
#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

/// Prints an error to stderr in the format of kubectl.
pub fn report_error(error: &anyhow::Error) {
    match error.downcast_ref::<di_client::Error>() {
        Some(di_client::Error::Server(_) | di_client::Error::Invalid { .. }) => {
            eprintln!("{error}");
        }
        // The messages of these errors include their causes.
        Some(_) => eprintln!("error: {error}"),
        None => eprintln!("error: {error:#}"),
    }
}

/// Warns that pods cannot be read, so that only the plan is printed.
pub fn warn_planned_only(why: &di_client::Error) {
    eprintln!("Warning: pods cannot be read, so only the plan is shown: {why}");
}

/// The kind and name of an object, such as `dijob.diengine.opendilab.org/cartpole`.
pub fn kind_and_name(object: &Value) -> String {
    let name = object["metadata"]["name"].as_str();
    let name = name.or(object["metadata"]["generateName"].as_str());
    format!("{}/{}", qualified_kind(object), name.unwrap_or_default())
}

/// The kind and group of an object, such as `dijob.diengine.opendilab.org`.
pub fn qualified_kind(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    match object["apiVersion"]
        .as_str()
        .and_then(|v| v.split_once('/'))
    {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind,
    }
}

/// Prints a value as JSON.
pub fn print_json(out: &mut impl Write, value: &Value) -> io::Result<()> {
    writeln!(out, "{value:#}")
}

/// Prints a value as YAML. The caller prints `---` between documents.
pub fn print_yaml(out: &mut impl Write, value: &Value) -> io::Result<()> {
    let text = serde_saphyr::to_string(value).map_err(io::Error::other)?;
    writeln!(out, "{}", text.trim_end())
}

/// Removes the managed fields, as kubectl does by default.
pub fn without_managed_fields(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}

/// A `List` of objects without managed fields.
pub fn to_trimmed_list(items: Vec<Value>) -> Value {
    let items: Vec<_> = items.into_iter().map(without_managed_fields).collect();
    to_list(&items)
}

/// A `List` of objects, unchanged.
pub fn to_list(items: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "List",
        "metadata": {"resourceVersion": ""},
        "items": items,
    })
}

/// Waits until stdout is closed or the request timeout of a watch is over.
pub async fn stdout_closed_or_timeout(cluster: &Cluster) {
    tokio::select! {
        () = stdout_closed() => {}
        () = cluster.wait_request_timeout() => {}
    }
}

/// Waits until the reader of stdout closes the pipe, as `head` does.
///
/// Without this, a command that waits would notice the closed pipe only at its next write.
#[cfg(unix)]
pub async fn stdout_closed() {
    match io::stdout().as_fd().try_clone_to_owned() {
        Ok(stdout) => wait_for_hangup(stdout).await,
        Err(_) => std::future::pending().await,
    }
}

/// Never returns: Windows reports a closed pipe only at the next write.
#[cfg(not(unix))]
pub async fn stdout_closed() {
    std::future::pending().await
}

#[cfg(unix)]
async fn wait_for_hangup(out: OwnedFd) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    // A plain thread: unlike `spawn_blocking`, it does not delay the exit of the process.
    std::thread::spawn(move || {
        // With no events requested, poll reports only hang-ups and errors.
        let mut fds = [PollFd::new(&out, PollFlags::empty())];
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
        // An error means that the receiver was dropped, so there is nothing to do.
        sender.send(()).ok();
    });
    receiver.await.ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn closed_pipe_is_noticed_without_a_write() {
        use std::time::Duration;

        use tokio::time::timeout;

        let (reader, writer) = io::pipe().unwrap();
        let mut hangup = std::pin::pin!(wait_for_hangup(writer.into()));
        let early = timeout(Duration::from_millis(50), &mut hangup).await;
        assert!(early.is_err(), "the reader is still open");
        drop(reader);
        timeout(Duration::from_secs(10), hangup).await.unwrap();
    }

    #[test]
    fn kind_and_name_include_the_group() {
        let job = json!({"apiVersion": "diengine.opendilab.org/v1alpha1", "kind": "DIJob", "metadata": {"name": "x"}});
        assert_eq!(kind_and_name(&job), "dijob.diengine.opendilab.org/x");
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
        assert_eq!(kind_and_name(&map), "configmap/x-");
    }

    #[test]
    fn printed_yaml_parses_to_the_same_value() {
        let value = json!({
            "octal": "0644", "bool": "yes", "null": "null", "number": "1.0", "empty": "",
            "lines": "a\n b\n", "colon": "a: b", "hash": "a #b", "list": [[], {}, ["- x"]],
            "time": "2026-01-01T00:00:00Z", "exp": "1e3", "hex": "0x10", "tilde": "~", "n": "n",
        });
        let mut text = Vec::new();
        print_yaml(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        let documents = di_client::manifest::parse("-", &text).unwrap();
        assert_eq!(documents[0].object, value, "{text}");
    }
}
