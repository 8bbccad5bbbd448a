//! Constants: writes a configuration as an expression that evaluates to it, with the fields that differ from
//! `Config::PLAIN`. Paths are full, because user types are named in the same scope. Never changes a value.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};
use zero_plan::{Config, Mesh, Offload, Order, Precision, Publish, Recompute, Serve, Split};

/// An expression for `config`.
pub fn config(config: &Config) -> TokenStream {
    let plain = &Config::PLAIN;
    let field = |differs: bool, name: &str, value: TokenStream| {
        let name = format_ident!("{name}");
        differs.then(|| quote!(#name: #value,))
    };
    let count = |name: &str, of: fn(&Config) -> usize| {
        let value = number(of(config));
        field(of(config) != of(plain), name, quote!(#value))
    };
    let stage = number(config.stage.into());
    let budget = |name: &str, of: fn(&Config) -> Option<usize>| {
        let value = of(config).map(number);
        field(of(config) != of(plain), name, quote!(::core::option::Option::Some(#value)))
    };
    let (gather, reduce) = (name("Often", config.gather), name("Often", config.reduce));
    let fields = [
        field(config.mesh != plain.mesh, "mesh", mesh(&config.mesh)),
        field(config.stage != plain.stage, "stage", quote!(#stage)),
        count("prefetch", |config| config.prefetch),
        count("bucket_bytes", |config| config.bucket_bytes),
        field(config.gather != plain.gather, "gather", gather),
        field(config.reduce != plain.reduce, "reduce", reduce),
        field(config.order != plain.order, "order", order(config.order)),
        field(config.split != plain.split, "split", split(config.split)),
        field(config.recompute != plain.recompute, "recompute", recompute(config.recompute)),
        field(config.precision != plain.precision, "precision", precision(&config.precision)),
        count("sequences", |config| config.sequences),
        count("length", |config| config.length),
        count("micro_batches", |config| config.micro_batches),
        field(config.snapshot != plain.snapshot, "snapshot", {
            let snapshot = config.snapshot;
            quote!(#snapshot)
        }),
        field(config.device != plain.device, "device", name("DeviceKind", config.device)),
        field(config.transport != plain.transport, "transport", name("TransportKind", config.transport)),
        field(config.optimizer != plain.optimizer, "optimizer", name("OptimizerKind", config.optimizer)),
        budget("memory_bytes", |config| config.memory_bytes),
        field(config.offload != plain.offload, "offload", offload(&config.offload)),
        budget("host_bytes", |config| config.host_bytes),
        budget("disk_bytes", |config| config.disk_bytes),
        field(config.publish != plain.publish, "publish", publish(config.publish)),
        field(config.serve != plain.serve, "serve", serve(config.serve)),
    ];
    let fields = fields.into_iter().flatten();
    quote! {
        ::zero_runtime::plan::Config {
            #(#fields)*
            ..::zero_runtime::plan::Config::PLAIN
        }
    }
}

fn offload(offload: &Offload) -> TokenStream {
    let states = offload.states().map(|(key, tier)| {
        let (key, tier) = (format_ident!("{key}"), name("TierKind", tier));
        quote!(#key: #tier)
    });
    let [prefetch, piece_bytes] = [offload.prefetch, offload.piece_bytes].map(number);
    let update = name("UpdateTime", offload.update);
    let update_on = name("UpdatePlace", offload.update_on);
    quote! {
        ::zero_runtime::plan::Offload {
            #(#states),*, prefetch: #prefetch, piece_bytes: #piece_bytes, update: #update, update_on: #update_on
        }
    }
}

fn publish(publish: Publish) -> TokenStream {
    let (dtype, copies) = (name("Width", publish.dtype), number(publish.copies));
    quote!(::zero_runtime::plan::Publish { dtype: #dtype, copies: #copies })
}

fn serve(serve: Serve) -> TokenStream {
    let (slots, staged) = (number(serve.slots), serve.staged);
    quote!(::zero_runtime::plan::Serve { slots: #slots, staged: #staged })
}

fn mesh(mesh: &Mesh) -> TokenStream {
    let zero = number(mesh.zero);
    let of_zero = quote!(::zero_runtime::plan::Mesh::of_zero(#zero));
    if *mesh == Mesh::of_zero(mesh.zero) {
        return of_zero;
    }
    let [nodes, replica, pipeline] = [mesh.nodes, mesh.replica, mesh.pipeline].map(number);
    let order = mesh.order.map(|axis| format_ident!("{axis:?}"));
    quote! {
        ::zero_runtime::plan::Mesh {
            nodes: #nodes,
            zero: #zero,
            replica: #replica,
            pipeline: #pipeline,
            order: [#(::zero_runtime::plan::Axis::#order),*],
        }
    }
}

fn order(order: Order) -> TokenStream {
    match order {
        Order::GPipe | Order::OneFOneB => name("Order", order),
        Order::Interleaved { chunks } => {
            let chunks = number(chunks);
            quote!(::zero_runtime::plan::Order::Interleaved { chunks: #chunks })
        }
    }
}

fn split(split: Split) -> TokenStream {
    match split {
        Split::Balanced | Split::Even => name("Split", split),
        Split::Units(units) => {
            let units = units.iter().copied().map(number);
            quote!(::zero_runtime::plan::Split::Units(&[#(#units),*]))
        }
    }
}

fn recompute(recompute: Recompute) -> TokenStream {
    match recompute {
        Recompute::None => name("Recompute", recompute),
        Recompute::Every(units) => {
            let units = number(units);
            quote!(::zero_runtime::plan::Recompute::Every(#units))
        }
        Recompute::Fields(fields) => quote!(::zero_runtime::plan::Recompute::Fields(&[#(#fields),*])),
    }
}

fn precision(precision: &Precision) -> TokenStream {
    let Precision { compute, params, reduce, master, moments } = *precision;
    let [compute, params, reduce, master, moments] =
        [compute, params, reduce, master, moments].map(|width| name("Width", width));
    quote! {
        ::zero_runtime::plan::Precision {
            compute: #compute,
            params: #params,
            reduce: #reduce,
            master: #master,
            moments: #moments,
        }
    }
}

/// A variant without fields, by its name.
fn name(kind: &str, variant: impl std::fmt::Debug) -> TokenStream {
    let (kind, variant) = (format_ident!("{kind}"), format_ident!("{variant:?}"));
    quote!(::zero_runtime::plan::#kind::#variant)
}

/// A number without a suffix, as people write it.
pub fn number(number: usize) -> Literal {
    Literal::usize_unsuffixed(number)
}

#[cfg(test)]
mod tests {
    use zero_plan::{Axis, DeviceKind, Often, OptimizerKind, TierKind, TransportKind, Width};

    use super::*;

    /// Without paths and blanks.
    fn short(config: &Config) -> String {
        let packed: String = super::config(config).to_string().split_whitespace().collect();
        ["::zero_runtime::plan::", "::core::option::"].iter().fold(packed, |packed, path| packed.replace(path, ""))
    }

    #[test]
    fn what_is_plain_is_left_out() {
        assert_eq!(short(&Config::PLAIN), "Config{..Config::PLAIN}");
        let config =
            Config { mesh: Mesh::of_zero(4), stage: 3, order: Order::GPipe, split: Split::Even, ..Config::PLAIN };
        let expected = "Config{mesh:Mesh::of_zero(4),stage:3,order:Order::GPipe,split:Split::Even,..Config::PLAIN}";
        assert_eq!(short(&config), expected);
        let config = Config { recompute: Recompute::Every(2), ..Config::PLAIN };
        assert_eq!(short(&config), "Config{recompute:Recompute::Every(2),..Config::PLAIN}");
    }

    #[test]
    fn every_field_is_written() {
        let config = Config {
            mesh: Mesh {
                nodes: 2,
                zero: 4,
                replica: 3,
                pipeline: 2,
                order: [Axis::Replica, Axis::Zero, Axis::Pipeline],
            },
            stage: 3,
            prefetch: 1,
            bucket_bytes: 1024,
            gather: Often::PerStep,
            reduce: Often::PerStep,
            order: Order::Interleaved { chunks: 2 },
            split: Split::Units(&[1, 2, 3, 4]),
            recompute: Recompute::Fields(&["blocks", "head"]),
            precision: Precision {
                compute: Width::BF16,
                params: Width::BF16,
                reduce: Width::BF16,
                master: Width::F32,
                moments: Width::BF16,
            },
            sequences: 5,
            length: 6,
            micro_batches: 8,
            snapshot: true,
            device: DeviceKind::Cpu,
            transport: TransportKind::Local,
            optimizer: OptimizerKind::Muon,
            memory_bytes: Some(9),
            offload: Offload { optimizer: TierKind::Disk, prefetch: 3, piece_bytes: 8192, ..Offload::NONE },
            host_bytes: Some(10),
            disk_bytes: Some(11),
            publish: Publish { dtype: Width::BF16, copies: 12 },
            serve: Serve { slots: 13, staged: true },
        };
        let expected = "Config{\
            mesh:Mesh{nodes:2,zero:4,replica:3,pipeline:2,order:[Axis::Replica,Axis::Zero,Axis::Pipeline],},\
            stage:3,prefetch:1,bucket_bytes:1024,gather:Often::PerStep,reduce:Often::PerStep,\
            order:Order::Interleaved{chunks:2},split:Split::Units(&[1,2,3,4]),\
            recompute:Recompute::Fields(&[\"blocks\",\"head\"]),\
            precision:Precision{compute:Width::BF16,params:Width::BF16,reduce:Width::BF16,master:Width::F32,\
            moments:Width::BF16,},\
            sequences:5,length:6,micro_batches:8,snapshot:true,transport:TransportKind::Local,\
            optimizer:OptimizerKind::Muon,memory_bytes:Option::Some(9),\
            offload:Offload{optimizer:TierKind::Disk,gradients:TierKind::Device,parameters:TierKind::Device,activations:TierKind::Device,prefetch:3,piece_bytes:8192,update:UpdateTime::AfterStep,update_on:UpdatePlace::Device},host_bytes:Option::Some(10),disk_bytes:Option::Some(11),\
            publish:Publish{dtype:Width::BF16,copies:12},serve:Serve{slots:13,staged:true},\
            ..Config::PLAIN}";
        assert_eq!(short(&config), expected);
    }
}
