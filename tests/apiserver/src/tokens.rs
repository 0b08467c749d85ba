use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
    rbac::v1::{Role, RoleBinding},
};
use kube::{Api, ResourceExt, api::PostParams};
use rcgen::{KeyPair, SigningKey};
use serde_json::{Value, json};

use crate::Space;

/// A service account with some permissions to jobs.
pub struct Account {
    space: Space,
    account: ServiceAccount,
}

impl Account {
    /// Creates an account with these verbs for the jobs of the namespace.
    pub async fn new(space: &Space, name: &str, verbs: &[&str]) -> Self {
        let accounts: Api<ServiceAccount> = Api::namespaced(space.client.clone(), &space.namespace);
        let new = PostParams::default();
        let account: ServiceAccount = from_json(json!({"metadata": {"name": name}}));
        let account = accounts.create(&new, &account).await.unwrap();
        let may = json!({"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": verbs});
        let role: Role = from_json(json!({"metadata": {"name": name}, "rules": [may]}));
        let roles: Api<Role> = Api::namespaced(space.client.clone(), &space.namespace);
        roles.create(&new, &role).await.unwrap();
        let binding: RoleBinding = from_json(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space.namespace}],
        }));
        let bindings: Api<RoleBinding> = Api::namespaced(space.client.clone(), &space.namespace);
        bindings.create(&new, &binding).await.unwrap();
        Self {
            space: space.clone(),
            account,
        }
    }

    /// Requests a token for this audience from the API server.
    pub async fn token(&self, audience: &str) -> String {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(vec![audience.to_owned()]),
                expiration_seconds: Some(600),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.space.client.clone(), &self.space.namespace);
        let name = self.account.name_any();
        let new = PostParams::default();
        let made = accounts.create_token_request(&name, &new, &request).await;
        made.unwrap().status.unwrap().token.unwrap()
    }

    /// Signs a token with the API server's key; it expires in this number of seconds.
    pub fn self_signed_token(&self, ends_in: i64) -> String {
        let key = std::fs::read_to_string(self.space.server.dir().join("accounts.key")).unwrap();
        let key = KeyPair::from_pem(&key).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = i64::try_from(now.as_secs()).unwrap();
        let (namespace, name) = (&self.space.namespace, self.account.name_any());
        let claims = json!({
            "iss": "https://kubernetes.default.svc", "aud": ["di-server"],
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "iat": now - 3600, "nbf": now - 3600, "exp": now + ends_in,
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": name, "uid": self.account.uid()},
            },
        });
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256"})), part(&claims));
        let signature = raw_signature(&key.sign(signed.as_bytes()).unwrap());
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

fn from_json<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// Converts an ECDSA signature from DER to its two 32-byte numbers.
fn raw_signature(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut both = Vec::with_capacity(64);
    for _ in 0..2 {
        let (number, next) = rest[2..].split_at(rest[1].into());
        let number = &number[number.len().saturating_sub(32)..];
        both.extend(std::iter::repeat_n(0, 32 - number.len()));
        both.extend(number);
        rest = next;
    }
    both
}
