use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::list_cache::CachedList;

/// Returns the list of a coordinator, or 304 if the requester has the list of this generation.
pub(super) fn list_response(list: &CachedList, headers: &HeaderMap) -> Response {
    let etag = list.etag();
    let Some(value) = etag
        .as_deref()
        .and_then(|etag| HeaderValue::from_str(etag).ok())
    else {
        return json_response(list.envelope());
    };
    let mut response = if is_known(headers, &value) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        json_response(list.envelope())
    };
    response.headers_mut().insert(header::ETAG, value);
    response
}

/// Returns a JSON document.
pub(super) fn json_response(bytes: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes).into_response()
}

/// Whether `If-None-Match` has this ETag. See
/// [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#field.if-none-match).
fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    tags.any(|tag| {
        let tag = tag.trim_ascii();
        tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_none_match_is_a_list_of_etags() {
        for (values, is_expected) in [
            (&[r#""u.1""#][..], true),
            (&[r#"W/"u.1""#], true),
            (&[r#""u.0" , "u.1""#], true),
            (&[r#""u.0""#, r#""u.1""#], true),
            (&["*"], true),
            (&[], false),
            (&["u.1"], false),
            (&[r#""u.10""#], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = HeaderValue::from_str(value).unwrap();
                headers.append(header::IF_NONE_MATCH, value);
            }
            let etag = HeaderValue::from_static(r#""u.1""#);
            assert_eq!(is_known(&headers, &etag), is_expected, "{values:?}");
        }
    }
}
