//! Errors of credential plugins.
//!
//! Arguments and output of a plugin may be secret, and kube's error texts contain both.

use kube::{client::AuthError, config::AuthInfo};
use tower::BoxError;

use crate::Error;

/// The credential plugin of this user.
pub(crate) fn plugin_command(user: &AuthInfo) -> Option<String> {
    let exec = user.exec.as_ref().and_then(|exec| exec.command.clone());
    let provider = user.auth_provider.as_ref();
    exec.or_else(|| provider?.config.get("cmd-path").cloned())
}

/// The error in kubectl's words, or `None` if the plugin is not the cause.
pub(crate) fn plugin_error(error: &AuthError, command: Option<&str>) -> Option<Error> {
    let command = command.unwrap_or_default();
    let message = match error {
        AuthError::AuthExecStart(why) => {
            format!("unable to run the credential plugin {command:?}: {why}")
        }
        AuthError::AuthExecRun { out, .. } => {
            let failed = format!(
                "getting credentials: exec: executable {command} failed with {}",
                out.status
            );
            // kube captures stderr only for a non-interactive plugin.
            match String::from_utf8_lossy(&out.stderr).trim() {
                "" => failed,
                why => format!("{failed}: {why}"),
            }
        }
        AuthError::AuthExecParse(_) => {
            format!("getting credentials: exec: executable {command} printed no ExecCredential")
        }
        _ => return None,
    };
    Some(Error::Configuration(message))
}

/// Converts the error of a request whose token could not be refreshed.
pub(crate) fn convert_token_error(error: BoxError, command: Option<&str>) -> BoxError {
    let cause = error.downcast_ref::<AuthError>();
    let converted = cause.and_then(|cause| plugin_error(cause, command));
    converted.map_or(error, Into::into)
}

#[cfg(all(test, unix))]
mod tests {
    use serde_json::json;

    use crate::connection::tests::connect_by_plugin;

    #[tokio::test]
    async fn failed_plugin_error_contains_no_secrets() {
        for (script, reason) in [
            ("echo secret; exit 3", "failed with exit status: 3"),
            (
                "echo secret; echo log in first >&2; exit 3",
                "failed with exit status: 3: log in first",
            ),
            ("echo '{status: secret'", "printed no ExecCredential"),
        ] {
            let error = connect_by_plugin(script).await.err().unwrap();
            assert_eq!(
                error.to_string(),
                format!("getting credentials: exec: executable sh {reason}")
            );
        }
    }

    #[tokio::test]
    async fn failed_token_refresh_error_contains_no_secrets() {
        let marker = tempfile::NamedTempFile::new().unwrap();
        let path = marker.path().display();
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "secret", "expirationTimestamp": "2026-01-01T00:00:00Z"},
        });
        let script =
            format!("echo '{credential}'; if [ -s {path} ]; then exit 3; fi; echo ran > {path}");
        let cluster = connect_by_plugin(&script).await.unwrap();
        let error = crate::get_job(&cluster, "j").await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "unable to connect to the server http://h:1: getting credentials: exec: executable sh failed with exit status: 3"
        );
    }
}
