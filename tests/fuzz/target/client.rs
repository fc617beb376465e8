//! Every gRPC method of the client port, found by reflection. Messages are made from descriptors,
//! or damaged; streams have a wrong number of messages or a wrong order.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use futures::future::BoxFuture;
use prost_reflect::{DescriptorPool, MethodDescriptor};

use super::{Attack, Outcome};
use crate::dice::Dice;
use crate::oracle::status;
use crate::rig::Rig;
use crate::wire::grpc::{self, Call, Caller};
use crate::wire::{harm, message, reflection};

/// The methods of the client port, and connections for calls.
pub(super) struct Client {
    rig: Arc<Rig>,
    caller: Caller,
    pool: DescriptorPool,
    methods: Vec<MethodDescriptor>,
}

pub(super) async fn prepare(rig: Arc<Rig>) -> anyhow::Result<Client> {
    let channel = rig.reach.channel(rig.node(0).client)?;
    let (pool, methods) = reflection::served(channel).await.context("reflection")?;
    eprintln!("client: {} methods", methods.len());
    let caller = Caller::new(rig.reach.clone());
    Ok(Client { rig, caller, pool, methods })
}

impl Attack for Client {
    fn input<'a>(&'a self, mut dice: Dice) -> BoxFuture<'a, anyhow::Result<Outcome>> {
        Box::pin(async move {
            let method = dice.pick(&self.methods).clone();
            let Some(messages) = self.messages(&method, &mut dice) else {
                return Ok(Outcome::of("not sent"));
            };
            let call = Call {
                path: path(&method, &mut dice),
                headers: grpc::headers(&mut dice),
                messages,
                ends: !dice.once_in(8),
                reads: !dice.once_in(32),
            };
            let address = self.rig.node(dice.below(3)).client;
            Ok(status::judge(method.full_name(), self.caller.call(address, call).await))
        })
    }
}

impl Client {
    /// The framed messages of a call; `None` if one may legally do harm (`wire::harm`).
    fn messages(&self, method: &MethodDescriptor, dice: &mut Dice) -> Option<Vec<Bytes>> {
        let is_wrong_number = dice.once_in(20);
        let count = if method.is_client_streaming() || is_wrong_number { dice.below(6) } else { 1 };
        let mut messages = Vec::new();
        for _ in 0..count {
            let made = message::message(&self.pool, &method.input(), dice);
            let encoded = message::encode(&made, dice);
            if harm::is_allowed_to_harm(&method.input(), &encoded) {
                return None;
            }
            messages.push(grpc::framed(&encoded, dice));
        }
        Some(messages)
    }
}

fn path(method: &MethodDescriptor, dice: &mut Dice) -> String {
    let service = method.parent_service();
    let path = format!("/{}/{}", service.full_name(), method.name());
    match dice.below(60) {
        0 => format!("{path}x"),
        1 => path.to_lowercase(),
        2 => format!("{path}?a=b"),
        _ => path,
    }
}
