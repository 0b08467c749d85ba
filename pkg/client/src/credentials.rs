//! Credential plugins that fail. What they were called with and what they printed may be secret; kube's own words hold both.

use kube::{client::AuthError, config::AuthInfo};
use tower::BoxError;

use crate::Error;

/// The program that gives this user's credentials.
pub(crate) fn helper(user: &AuthInfo) -> Option<String> {
    let exec = user.exec.as_ref().and_then(|exec| exec.command.clone());
    let provider = user.auth_provider.as_ref();
    exec.or_else(|| provider?.config.get("cmd-path").cloned())
}

/// Why there are no credentials, as kubectl tells it; nothing where the plugin is not the cause.
pub(crate) fn failure(error: &AuthError, helper: Option<&str>) -> Option<Error> {
    let helper = helper.unwrap_or_default();
    let message = match error {
        AuthError::AuthExecStart(why) => {
            format!("unable to run the credential plugin {helper:?}: {why}")
        }
        AuthError::AuthExecRun { out, .. } => {
            let failed = format!(
                "getting credentials: exec: executable {helper} failed with {}",
                out.status
            );
            // Captured where the plugin may not talk to the user.
            match String::from_utf8_lossy(&out.stderr).trim() {
                "" => failed,
                why => format!("{failed}: {why}"),
            }
        }
        AuthError::AuthExecParse(_) => {
            format!("getting credentials: exec: executable {helper} printed no ExecCredential")
        }
        _ => return None,
    };
    Some(Error::Configuration(message))
}

/// The same where a request failed because its token could not be had anew.
pub(crate) fn told(error: BoxError, helper: Option<&str>) -> BoxError {
    let cause = error.downcast_ref::<AuthError>();
    let failure = cause.and_then(|cause| failure(cause, helper));
    failure.map_or(error, Into::into)
}

#[cfg(all(test, unix))]
mod tests {
    use serde_json::json;

    use crate::cluster::tests::connect_by_plugin;

    #[tokio::test]
    async fn what_a_plugin_is_called_with_and_prints_is_not_told() {
        for (script, said) in [
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
                format!("getting credentials: exec: executable sh {said}")
            );
        }
    }

    #[tokio::test]
    async fn nor_when_it_fails_later() {
        let ran = tempfile::NamedTempFile::new().unwrap();
        let path = ran.path().display();
        let credential = json!({
            "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "secret", "expirationTimestamp": "2026-01-01T00:00:00Z"},
        });
        let script =
            format!("echo '{credential}'; if [ -s {path} ]; then exit 3; fi; echo ran > {path}");
        let cluster = connect_by_plugin(&script).await.unwrap();
        let error = crate::job(&cluster, "j").await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "unable to connect to the server http://h:1: getting credentials: exec: executable sh failed with exit status: 3"
        );
    }
}
