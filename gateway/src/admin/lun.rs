//! `/v1/luns`: disks, their images, and what is known of both.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use portico_backend::catalog::LunOptions;
use portico_backend::clock::{Clock, SystemClock};
use portico_backend::image::{ImageStat, NewImage};

use super::Context;
use super::api::block as api;
use super::reply::{ApiError, Body, Named, Parameters, page};
use super::user::{PageQuery, check_limit};
use crate::block::{ImageSpec, LunSpec, LunState, Serving};

pub(super) async fn list(
    State(context): State<Context>,
    Parameters(query): Parameters<PageQuery>,
) -> Result<Json<api::Luns>, ApiError> {
    let limit = check_limit(query.limit)?;
    let luns = context.block.luns().await?;
    let after = query.after.as_deref();
    let (luns, next) = page(luns, after, limit, |lun| lun.record.name.as_str());
    let luns = luns.into_iter().map(document).collect();
    Ok(Json(api::Luns { luns, next }))
}

pub(super) async fn create(
    State(context): State<Context>,
    Body(new): Body<api::NewLun>,
) -> Result<(StatusCode, Json<api::Lun>), ApiError> {
    let options = LunOptions {
        read_only: new.read_only,
        write_cache: new.write_cache,
    };
    let image = image_of(new)?;
    let made = context.block.lun_create(LunSpec { image, options }).await?;
    Ok((StatusCode::CREATED, Json(document(made))))
}

pub(super) async fn read(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<Json<api::Lun>, ApiError> {
    Ok(Json(document(context.block.lun(&name).await?)))
}

pub(super) async fn change(
    State(context): State<Context>,
    Named(name): Named<String>,
    Body(change): Body<api::LunChange>,
) -> Result<Json<api::Lun>, ApiError> {
    let block = &context.block;
    let api::LunChange {
        size_bytes,
        shrink,
        read_only,
        write_cache,
    } = change;
    let changed = match (size_bytes, read_only, write_cache) {
        (Some(size_bytes), None, None) => block.lun_resize(&name, size_bytes, shrink).await?,
        (None, Some(_), _) | (None, _, Some(_)) if !shrink => {
            let set = |options: &mut LunOptions| {
                options.read_only = read_only.unwrap_or(options.read_only);
                options.write_cache = write_cache.unwrap_or(options.write_cache);
            };
            block.lun_set_options(&name, set).await?
        }
        _ => {
            return Err(ApiError::invalid(
                "give size_bytes and perhaps shrink, or read_only or write_cache or both",
            ));
        }
    };
    Ok(Json(document(changed)))
}

pub(super) async fn delete(
    State(context): State<Context>,
    Named(name): Named<String>,
) -> Result<StatusCode, ApiError> {
    context.block.lun_delete(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn image_of(new: api::NewLun) -> Result<ImageSpec, ApiError> {
    let numbers = [
        new.object_size,
        new.stripe_unit,
        new.stripe_count,
        new.block_bytes,
    ];
    match (new.size_bytes, new.existing) {
        (None, true) if numbers.iter().all(Option::is_none) => Ok(ImageSpec::Adopt(new.name)),
        (_, true) => Err(ApiError::invalid(
            "an image that exists has its size and layout; leave them out",
        )),
        (None, false) => Err(ApiError::invalid(
            "give size_bytes, or existing for an image that is there",
        )),
        (Some(size_bytes), false) => {
            let mut image = NewImage::new(&new.name, size_bytes, SystemClock.now_ms());
            if let Some(object_size) = new.object_size {
                (image.object_size, image.stripe_unit) = (object_size, object_size);
            }
            image.stripe_unit = new.stripe_unit.unwrap_or(image.stripe_unit);
            image.stripe_count = new.stripe_count.unwrap_or(image.stripe_count);
            image.block_bytes = new.block_bytes.unwrap_or(image.block_bytes);
            Ok(ImageSpec::Make(image))
        }
    }
}

fn document(lun: LunState) -> api::Lun {
    let (state, reason) = match lun.serving {
        Serving::Here => ("served", None),
        Serving::Elsewhere => ("elsewhere", None),
        Serving::Not(why) => ("waiting", Some(why)),
        Serving::Deleting => ("deleting", None),
    };
    let name = lun.record.name;
    let maps = lun
        .maps
        .into_iter()
        .map(|(target, number, initiator)| api::LunMap {
            target,
            lun: number,
            name: name.clone(),
            initiator,
        });
    api::Lun {
        maps: maps.collect(),
        name,
        node: lun.node.to_string(),
        state: state.to_owned(),
        reason,
        read_only: lun.record.options.read_only,
        write_cache: lun.record.options.write_cache,
        created_ms: lun.record.created_ms,
        image: lun.image.map(image_document),
    }
}

fn image_document(image: ImageStat) -> api::LunImage {
    let identity = image.identity.as_ref();
    api::LunImage {
        size_bytes: image.size_bytes,
        object_size: image.layout.object_size(),
        stripe_unit: image.layout.stripe_unit(),
        stripe_count: image.layout.stripe_count(),
        block_bytes: identity.map(|identity| identity.block_bytes),
        naa: identity.map(|identity| identity.naa.to_string()),
        serial: identity.map(|identity| identity.serial.clone()),
        id: image.id,
    }
}
