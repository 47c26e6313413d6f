//! Topologies: what files say, what they may not say, and what collectives take over their links.

mod common;

use common::mesh;
use msc_ir::module::{AxisId, Mesh};
use msc_ir::ops::collective::{Axes, Collective};
use msc_ir::{DType, Monoid, TensorType};
use msc_passes::PassError;
use msc_passes::cost::DeviceModel;
use msc_passes::cost::links::{Algorithm, Level, LinkKind, Links};
use msc_passes::cost::topology::Topology;

fn shipped(name: &str) -> Topology {
    Topology::shipped(name).expect("is shipped").unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn all_reduce() -> Collective {
    Collective::AllReduce { monoid: Monoid::Sum, axes: Axes::new() }
}

fn all_gather() -> Collective {
    Collective::AllGather { dim: 0, axes: Axes::new() }
}

fn reduce_scatter() -> Collective {
    Collective::ReduceScatter { monoid: Monoid::Sum, dim: 0, axes: Axes::new() }
}

fn all_to_all() -> Collective {
    Collective::AllToAll { split_dim: 0, concat_dim: 0, axes: Axes::new() }
}

fn kinds() -> Vec<Collective> {
    let permute = Collective::Permute { pairs: Default::default(), axes: Axes::new() };
    vec![
        all_reduce(),
        all_gather(),
        reduce_scatter(),
        all_to_all(),
        permute,
        Collective::Broadcast { axes: Axes::new() },
    ]
}

#[test]
fn those_that_come_with_msc() {
    let devices = |name: &str| shipped(name).devices;
    assert_eq!(Topology::shipped_names().map(devices), [8, 64, 768, 64]);
    for name in Topology::shipped_names() {
        let t = shipped(name);
        assert_eq!((t.name.as_str(), t.order.len()), (name, t.devices));
        assert_eq!(t.groups.last().map(|g| g.devices), Some(t.devices));
        assert_eq!(t.groups.len(), t.device.links.levels().len());
    }
    assert!(Topology::shipped("910d").is_none());
}

/// Bandwidth as users of a 910B server have measured it, GB/s by message size over time: the model is within 45 % of
/// all-gather at 2, 4, 8 cards and of all-reduce.
#[test]
fn a_server_of_eight_is_near_what_was_measured() {
    let t = shipped("910b-8");
    let whole: u64 = 1 << 30;
    for (n, gather, reduce) in [(2u64, 38.0, 18.0), (4, 64.0, 30.0), (8, 149.0, 72.0)] {
        let m = mesh(&[("tp", n as usize)]);
        let rate = |op: Collective, local: u64| {
            let ty = TensorType::new(DType::U8, [local as usize]);
            whole as f64 / (t.device.collective_ps_on(&op, &ty, &m, &[AxisId(0)]) as f64 / 1e3)
        };
        for (got, want) in [(rate(all_gather(), whole / n), gather), (rate(all_reduce(), whole), reduce)] {
            assert!(got > want * 0.8 && got < want * 1.45, "{n} cards: {got} for {want}");
        }
    }
}

#[test]
fn the_algorithm_follows_from_where_a_group_lies() {
    let t = shipped("910b-64");
    let way = |axes: &[(&str, usize)], over: &[u8]| {
        let over: Vec<AxisId> = over.iter().map(|&a| AxisId(a)).collect();
        let r = t.device.route(&all_reduce(), 64 << 20, &mesh(axes), &over).expect("a group");
        t.describe(&r)
    };
    let mesh_ = &[("dp", 8), ("tp", 8)][..];
    assert_eq!(way(mesh_, &[1]), "full_mesh over HCCS within a server");
    assert_eq!(way(mesh_, &[0]), "switch over RoCE within a cluster");
    assert_eq!(way(mesh_, &[0, 1]), "hierarchical over RoCE within a cluster");
    // 2 of dp within a server, 4 servers.
    assert_eq!(way(&[("dp", 8), ("tp", 4)], &[0]), "hierarchical over RoCE within a cluster");
    // Three ranks in a row cross a border of servers somewhere.
    assert_eq!(way(&[("dp", 8), ("tp", 3)], &[1]), "ring over RoCE within a cluster");
    assert_eq!(way(&[("dp", 2), ("tp", 3)], &[1]), "full_mesh over HCCS within a server");
    assert_eq!(t.device.route(&all_reduce(), 1, &mesh(mesh_), &[]), None);
}

/// What a group's shape is by counting ranks.
fn counted(mesh: &Mesh, axes: &[AxisId], block: usize) -> Option<usize> {
    let mut sizes: Vec<usize> = Vec::new();
    for r in 0..mesh.ranks() {
        let group = mesh.group(r, axes);
        sizes.extend(
            (0..mesh.ranks().div_ceil(block)).map(|b| group.iter().filter(|x| *x / block == b).count()),
        );
    }
    sizes.retain(|n| *n > 0);
    sizes.sort_unstable();
    (sizes.first() == sizes.last()).then(|| sizes[0])
}

/// On a topology of two levels, a group costs what its shape says: `a` ranks to a block in `b` blocks.
#[test]
fn groups_are_seen_as_counting_ranks_sees_them() {
    let meshes = [[2, 3, 4], [4, 2, 2], [3, 3, 3], [2, 8, 2], [5, 1, 6], [4, 4, 4], [1, 6, 2]];
    let subsets: [&[u8]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    let mut regular = 0;
    for sizes in meshes {
        let m = mesh(&[("a", sizes[0]), ("b", sizes[1]), ("c", sizes[2])]);
        for block in [1, 2, 3, 4, 6, 8, 12, 64] {
            let level = |devices, latency_ps| Level {
                devices,
                kind: LinkKind::FullMesh,
                bytes_per_us: 1_000_000,
                latency_ps,
            };
            let links = Links::new(&[level(block, 1), level(1 << 20, 1000)]);
            for axes in subsets {
                let axes: Vec<AxisId> = axes.iter().map(|&a| AxisId(a)).collect();
                let n: usize = axes.iter().map(|&a| m.size(a)).product();
                let Some(route) = links.route(&reduce_scatter(), 0, &m, &axes) else {
                    assert_eq!(n, 1);
                    continue;
                };
                // No bytes: the time tells which levels are used, 1 for the inner, 1000 for the outer one.
                let whole = counted(&m, &axes, 1 << 20) == Some(n);
                assert!(whole);
                let want = match counted(&m, &axes, block) {
                    Some(inside) if n.is_multiple_of(inside) => {
                        regular += 1;
                        u64::from(inside > 1) + 1000 * u64::from(inside < n)
                    }
                    _ => continue,
                };
                let ring = (n as u64 - 1) * 1000;
                assert!(
                    route.ps == want || route.ps == ring,
                    "{sizes:?} {axes:?} {block}: {route:?}, not {want}"
                );
                assert!(route.ps == want || route.algorithm == Algorithm::Ring, "{route:?}");
            }
        }
    }
    assert!(regular > 200, "{regular}");
}

#[test]
fn more_bytes_never_take_less_and_farther_links_never_help() {
    for name in Topology::shipped_names() {
        let t = shipped(name);
        let m = mesh(&[("dp", t.devices / 8), ("tp", 8)]);
        for op in kinds() {
            for axes in [&[AxisId(1)][..], &[AxisId(0)], &[AxisId(0), AxisId(1)]] {
                let mut before = 0;
                for bytes in [0u64, 1, 1000, 1 << 20, 1 << 30, 1 << 40, u64::MAX] {
                    let Some(r) = t.device.route(&op, bytes, &m, axes) else { continue };
                    assert!(r.ps >= before, "{name} {op:?} {axes:?} {bytes}");
                    before = r.ps;
                }
            }
        }
    }
    // The same ranks next to each other or one to a server.
    let t = shipped("910b-64");
    let m = mesh(&[("dp", 8), ("tp", 8)]);
    // But for what uses one link only: a port of RoCE is a little faster than one HCCS link.
    for op in kinds().into_iter().filter(|o| !matches!(o, Collective::Permute { .. })) {
        let ps = |a: u8| t.device.route(&op, 1 << 24, &m, &[AxisId(a)]).expect("a group").ps;
        assert!(ps(0) > ps(1), "{op:?}");
    }
}

/// A gather of all and a scatter of all move the same bytes; an all-reduce is both.
#[test]
fn collectives_are_made_of_each_other() {
    let t = shipped("910b-64");
    let m = mesh(&[("dp", 8), ("tp", 8)]);
    for axes in [&[AxisId(1)][..], &[AxisId(0)], &[AxisId(0), AxisId(1)]] {
        let n: u64 = axes.iter().map(|&a| m.size(a) as u64).product();
        let ps = |op: Collective, bytes: u64| t.device.route(&op, bytes, &m, axes).expect("a group").ps;
        let whole = 64 << 20;
        assert_eq!(ps(reduce_scatter(), whole), ps(all_gather(), whole / n));
        assert_eq!(ps(all_reduce(), whole), 2 * ps(reduce_scatter(), whole));
    }
    // Without a topology the model is what it was: one full mesh.
    let plain = DeviceModel::default();
    let ty = TensorType::new(DType::F32, [1 << 20]);
    let on = plain.collective_ps_on(&all_reduce(), &ty, &m, &[AxisId(1)]);
    assert_eq!(on, plain.collective_ps(&all_reduce(), &ty, 8));
}

#[test]
fn more_ranks_than_devices() {
    let t = shipped("910b-8");
    assert_eq!(t.check(&mesh(&[("dp", 2), ("tp", 4)])), Ok(()));
    for (axes, nearest) in [
        (&[("dp", 4), ("tp", 4)][..], "dp=2,tp=4"),
        (&[("dp", 2), ("tp", 16)], "dp=1,tp=8"),
        (&[("dp", 3), ("tp", 6)], "dp=1,tp=6"),
    ] {
        let e = t.check(&mesh(axes)).expect_err("too many").to_string();
        assert!(e.contains("MSC-C0001") && e.contains("8 devices") && e.contains(nearest), "{e}");
    }
}

/// A file of four devices in two servers.
fn file(change: impl Fn(&mut serde_json::Value)) -> Result<Topology, PassError> {
    let mut v = serde_json::json!({
        "version": 1, "name": "small", "notes": ["anything"],
        "devices": {
            "count": 4, "model": "x", "matrix_tflops": 1.5, "vector_gops": 10, "memory_gb_per_s": 20,
            "memory_gib": 0.5, "launch_us": 0, "collective_us": 2.5
        },
        "groups": [{"name": "server", "members": [[0, 2], [3, 1]]}, {"name": "cluster", "size": 4}],
        "links": [
            {"name": "in", "within": "server", "kind": "ring", "gb_per_s": 2.5, "latency_us": 0},
            {"name": "out", "within": "cluster", "kind": "switch", "gb_per_s": 1, "latency_us": 3}
        ]
    });
    change(&mut v);
    Topology::parse("small.json", &v.to_string())
}

#[test]
fn units_and_the_order_of_devices() {
    let t = file(|_| ()).expect("is right");
    assert_eq!(t.order, [0, 2, 1, 3]);
    let d = &t.device;
    assert_eq!((d.cube_flops_per_ns, d.vector_ops_per_ns, d.hbm_bytes_per_ns), (1500, 10, 20));
    assert_eq!((d.memory_bytes, d.launch_ps, d.latency_ps), (1 << 29, 0, 2_500_000));
    let levels = d.links.levels();
    assert_eq!((levels[0].devices, levels[0].kind, levels[0].bytes_per_us), (2, LinkKind::Ring, 2500));
    assert_eq!((levels[1].devices, levels[1].kind, levels[1].latency_ps), (4, LinkKind::Switch, 3_000_000));
}

#[test]
fn every_fault_is_told_with_its_path() {
    type Change = fn(&mut serde_json::Value);
    let faults: [(Change, &str, &str); 24] = [
        (|v| v["version"] = 2.into(), "$.version", "version 2"),
        (|v| v["linkz"] = 1.into(), "$.linkz", "do you mean `links`"),
        (|v| v["name"] = "".into(), "$.name", "a name is expected"),
        (|v| drop(v.as_object_mut().unwrap().remove("groups")), "$", "`groups` is missing"),
        (|v| v["devices"] = 4.into(), "$.devices", "an object is expected, this is a number"),
        (|v| v["devices"]["count"] = 0.into(), "$.devices.count", "0 should be"),
        (|v| v["devices"]["count"] = 1e30.into(), "$.devices.count", "should be a whole number"),
        (|v| v["devices"]["matrix_tflops"] = (-1).into(), "$.devices.matrix_tflops", "-1 should be between"),
        (
            |v| v["devices"]["launch_us"] = "5".into(),
            "$.devices.launch_us",
            "a number is expected, this is a string",
        ),
        (|v| v["groups"] = serde_json::json!([]), "$.groups", "between 1 and"),
        (|v| v["groups"][0]["size"] = 2.into(), "$.groups[0]", "either `size` or `members`"),
        (|v| v["groups"][0]["members"] = 3.into(), "$.groups[0].members", "lists of device numbers"),
        (|v| v["groups"][0]["members"][1][0] = 4.into(), "$.groups[0].members[1][0]", "4 is no device"),
        (|v| v["groups"][0]["members"][1][0] = 0.into(), "$.groups[0].members[1][0]", "device 0 is in two"),
        (
            |v| v["groups"][0]["members"] = serde_json::json!([[0, 1]]),
            "$.groups[0].members",
            "device 2 is in none",
        ),
        (
            |v| v["groups"][0]["members"] = serde_json::json!([[0, 1, 2], [3]]),
            "$.groups[0].members[1]",
            "all must be equal",
        ),
        (
            |v| v["groups"][1] = serde_json::json!({"name": "cluster", "size": 3}),
            "$.groups[1].size",
            "no multiple of the 2",
        ),
        (|v| v["groups"][1]["name"] = "server".into(), "$.groups[1].name", "two groups `server`"),
        (|v| v["devices"]["count"] = 6.into(), "$.groups[0].members", "device 4 is in none"),
        (|v| drop(v["groups"].as_array_mut().unwrap().pop()), "$.groups", "has 2 of the 4 devices"),
        (|v| v["links"][0]["within"] = "servr".into(), "$.links[0].within", "do you mean `server`"),
        (|v| v["links"][1]["kind"] = "bus".into(), "$.links[1].kind", "none of full_mesh, switch, ring"),
        (|v| v["links"][1]["within"] = "server".into(), "$.links[1].within", "two links"),
        (
            |v| drop(v["links"].as_array_mut().unwrap().pop()),
            "$.links",
            "nothing links the parts of group `cluster`",
        ),
    ];
    for (change, path, part) in faults {
        let e = file(change).expect_err(part);
        let PassError::Topology { path: at, message, .. } = &e else { panic!("{e}") };
        assert_eq!(at, path, "{e}");
        assert!(message.contains(part), "{e}");
        assert!(e.to_string().starts_with("MSC-C0004: small.json: $"), "{e}");
    }
    let e = Topology::parse("small.json", "{\"version\": 1,").expect_err("is cut off").to_string();
    assert!(e.contains("no JSON") && e.contains("line 1"), "{e}");
    // Groups of the level below must be whole in those above.
    let e = file(|v| {
        v["groups"] = serde_json::json!([
            {"name": "server", "size": 2}, {"name": "rack", "members": [[0, 2, 1, 3]]}, {"name": "hall", "size": 4}
        ])
    });
    assert!(e.expect_err("as large as the one below").to_string().contains("$.groups[2].size"));
    let e = file(|v| {
        v["devices"]["count"] = 8.into();
        v["groups"] = serde_json::json!([
            {"name": "server", "size": 2}, {"name": "cluster", "members": [[0, 2, 4, 6], [1, 3, 5, 7]]}
        ])
    });
    assert!(e.expect_err("cuts servers").to_string().contains("not whole"));
}

/// Whatever stands in a file, it is read or refused; what is read has levels that can be asked.
#[test]
fn no_file_makes_it_panic() {
    let good = include_str!("../../topologies/910b-64.json");
    let mut x = 1u64;
    let mut next = |n: usize| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as usize % n
    };
    let (mut refused, mut read) = (0, 0);
    for _ in 0..20_000 {
        let mut text = good.as_bytes().to_vec();
        for _ in 0..1 + next(3) {
            let at = next(text.len());
            match next(3) {
                0 => text[at] = b"0123456789[]{},:\"-e."[next(20)],
                1 => text.insert(at, b'0' + next(10) as u8),
                _ => drop(text.remove(at)),
            }
        }
        match Topology::parse("t.json", &String::from_utf8_lossy(&text)) {
            Err(e) => {
                assert!(e.to_string().starts_with("MSC-C0004: t.json: $"), "{e}");
                refused += 1;
            }
            Ok(t) => {
                read += 1;
                let m = mesh(&[("a", 3), ("b", 5)]);
                for op in kinds() {
                    assert!(t.device.route(&op, 1 << 20, &m, &[AxisId(0), AxisId(1)]).is_some());
                }
            }
        }
    }
    assert!(refused > 1000 && read > 1000, "{refused} {read}");
    assert!(Topology::parse("t.json", &"[".repeat(100_000)).is_err());
}
