//! What every back end must pass.
//!
//! Each rank calls [`check_rank`], in whatever process it lives. Data follow from rank and case, so every rank
//! computes what it should get: reductions by the reference
//! [`Collective::combine_group`], moves by hand.

use super::{CommError, Communicator, World};
use msc_ir::ops::collective::Collective;
use msc_ir::{DType, Monoid, Storage, Tensor};

/// Element types that are reduced, with a monoid for which order, overflow or rounding matters.
const REDUCTIONS: [(DType, Monoid); 12] = [
    (DType::F32, Monoid::Sum),
    (DType::BF16, Monoid::Sum),
    (DType::F32, Monoid::Max),
    (DType::F32, Monoid::Product),
    (DType::BF16, Monoid::Min),
    (DType::F16, Monoid::Sum),
    (DType::F64, Monoid::Sum),
    (DType::I32, Monoid::Sum),
    (DType::I64, Monoid::Max),
    (DType::U8, Monoid::Sum),
    (DType::U32, Monoid::Or),
    (DType::I1, Monoid::Sum),
];

/// Elements beyond which only the first types are reduced, and only in the whole world: data of all ranks are made by
/// each rank, in minutes.
const LARGE: usize = 1 << 20;

type Check = Result<(), String>;

fn values(dtype: DType, n: usize, seed: u64) -> Tensor {
    let mut s = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        (s >> 11) as f64 / (1u64 << 53) as f64
    };
    // Magnitudes over twelve decades, so that another order of summation gives other bits.
    let power = |x: f64| f64::from_bits((1003 + (41.0 * x) as u64) << 52);
    let v: Vec<f64> = (0..n).map(|_| (next() - 0.5) * power(next())).collect();
    Tensor::new([n], Storage::from_f64s(dtype, &v))
}

fn failed(what: &str, n: usize) -> impl Fn(CommError) -> String {
    move |e| format!("{what} of {n} elements: {e}")
}

fn equal(what: &str, got: &[u8], want: &[u8]) -> Check {
    if got == want {
        return Ok(());
    }
    let at = got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(got.len().min(want.len()));
    Err(format!("{what}: wrong from byte {at} of {}", want.len()))
}

/// Checks every call from one rank, in the whole world and in overlapping groups, with messages of `sizes`
/// elements for each rank (odd ones and 0 should be among them). All ranks must call it with the same sizes.
///
/// # Errors
/// The first call that fails or gives something else than it should.
pub fn check_rank(world: &dyn World, rank: usize, sizes: &[usize]) -> Check {
    let n = world.ranks();
    let everyone: Vec<usize> = (0..n).collect();
    let backwards: Vec<usize> = (0..n).rev().collect();
    let halves: Vec<usize> = everyone.iter().copied().filter(|r| (r < &(n / 2)) == (rank < n / 2)).collect();
    let parity: Vec<usize> = everyone.iter().copied().filter(|r| r % 2 == rank % 2).collect();
    for (tag, members) in [everyone.clone(), backwards, halves, parity].iter().enumerate() {
        let c = world.communicator(rank, members, tag as u64).map_err(|e| e.to_string())?;
        let some: Vec<usize> = sizes.iter().copied().filter(|&n| tag == 0 || n < LARGE).collect();
        group(&*c, members, &some, tag as u64)?;
    }
    // Chains of pairs: every rank but the ends is in two groups.
    for first in 0..n.saturating_sub(1) {
        if rank == first || rank == first + 1 {
            let all = world.communicator(rank, &everyone, 9).map_err(|e| e.to_string())?;
            let pair = all.subgroup(&[first + 1, first], 10).map_err(|e| e.to_string())?;
            group(&*pair, &[first + 1, first], &sizes[..sizes.len().min(2)], 10 + first as u64)?;
        }
    }
    Ok(())
}

fn group(c: &dyn Communicator, members: &[usize], sizes: &[usize], seed: u64) -> Check {
    if members.get(c.rank()).is_none() || c.size() != members.len() {
        return Err(format!("position {} of {} in {members:?}", c.rank(), c.size()));
    }
    for &n in sizes {
        let seed = seed * 1000 + n as u64 % 997;
        let count = if n < LARGE { REDUCTIONS.len() } else { 2 };
        for &(dtype, monoid) in &REDUCTIONS[..count] {
            reductions(c, members, dtype, monoid, n, seed)?;
        }
        moves(c, members, n, seed)?;
        messages(c, members, n, seed)?;
    }
    c.barrier().map_err(failed("barrier", 0))
}

fn of(members: &[usize], dtype: DType, n: usize, seed: u64) -> Vec<Tensor> {
    members.iter().map(|&m| values(dtype, n, seed * 64 + m as u64 + 1)).collect()
}

fn reductions(
    c: &dyn Communicator,
    members: &[usize],
    dtype: DType,
    monoid: Monoid,
    n: usize,
    seed: u64,
) -> Check {
    let what = |call: &str| format!("{call} {monoid} of {n} {dtype} over {members:?}");
    let inputs = of(members, dtype, n * c.size(), seed);
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let op = Collective::AllReduce { monoid, axes: Default::default() };
    let want = op.combine_group(&refs).map_err(|e| e.to_string())?.swap_remove(0);
    let mut data = inputs[c.rank()].data.bytes().to_vec();
    c.all_reduce(&mut data, dtype, monoid).map_err(failed("all_reduce", n))?;
    equal(&what("all_reduce"), &data, want.data.bytes())?;
    let part = n * dtype.size_bytes();
    let mut out = vec![0xee; part];
    c.reduce_scatter(inputs[c.rank()].data.bytes(), &mut out, dtype, monoid)
        .map_err(failed("reduce_scatter", n))?;
    equal(&what("reduce_scatter"), &out, &want.data.bytes()[c.rank() * part..][..part])
}

fn moves(c: &dyn Communicator, members: &[usize], n: usize, seed: u64) -> Check {
    let what = |call: &str| format!("{call} of {n} over {members:?}");
    let (me, size) = (c.rank(), c.size());
    let inputs = of(members, DType::F32, n, seed + 1);
    let part = n * 4;
    let mut out = vec![0xee; part * size];
    c.all_gather(inputs[me].data.bytes(), &mut out).map_err(failed("all_gather", n))?;
    let want: Vec<u8> = inputs.iter().flat_map(|t| t.data.bytes().to_vec()).collect();
    equal(&what("all_gather"), &out, &want)?;

    let inputs = of(members, DType::F32, n * size, seed + 2);
    c.all_to_all(inputs[me].data.bytes(), &mut out).map_err(failed("all_to_all", n))?;
    let want: Vec<u8> = inputs.iter().flat_map(|t| t.data.bytes()[me * part..][..part].to_vec()).collect();
    equal(&what("all_to_all"), &out, &want)?;

    // Rank i sends (i + j) mod 3 times as much to rank j.
    let count = |i: usize, j: usize| (i + j) % 3 * part;
    let send: Vec<usize> = (0..size).map(|j| count(me, j)).collect();
    let receive: Vec<usize> = (0..size).map(|i| count(i, me)).collect();
    let byte = |i: usize, j: usize, k: usize| (i * 31 + j * 7 + k) as u8;
    let input: Vec<u8> = (0..size).flat_map(|j| (0..count(me, j)).map(move |k| byte(me, j, k))).collect();
    let want: Vec<u8> = (0..size).flat_map(|i| (0..count(i, me)).map(move |k| byte(i, me, k))).collect();
    let mut out = vec![0xee; want.len()];
    c.all_to_all_v(&input, &send, &mut out, &receive).map_err(failed("all_to_all_v", n))?;
    equal(&what("all_to_all_v"), &out, &want)?;

    let inputs = of(members, DType::F32, n, seed + 3);
    for root in [0, size - 1] {
        let mut data = inputs[me].data.bytes().to_vec();
        c.broadcast(root, &mut data).map_err(failed("broadcast", n))?;
        equal(&what("broadcast"), &data, inputs[root].data.bytes())?;
    }
    Ok(())
}

/// Two messages to the next rank in turn; the last one receives first, so that the ring closes.
fn messages(c: &dyn Communicator, members: &[usize], n: usize, seed: u64) -> Check {
    let (me, size) = (c.rank(), c.size());
    if size == 1 {
        return Ok(());
    }
    let (to, from) = ((me + 1) % size, (me + size - 1) % size);
    let inputs = [of(members, DType::F32, n, seed + 4), of(members, DType::F32, 1, seed + 5)];
    let send = || -> Check {
        inputs.iter().try_for_each(|t| c.send(to, t[me].data.bytes()).map_err(failed("send", n)))
    };
    let receive = || -> Check {
        inputs.iter().try_for_each(|t| {
            let mut data = vec![0xee; t[from].data.bytes().len()];
            c.receive(from, &mut data).map_err(failed("receive", n))?;
            equal(&format!("message of {n} over {members:?}"), &data, t[from].data.bytes())
        })
    };
    if me == size - 1 {
        receive()?;
        send()
    } else {
        send()?;
        receive()
    }
}
