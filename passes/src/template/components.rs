//! Strongly connected components (Tarjan), without recursion.

/// A directed graph: `edges[starts[u]..starts[u + 1]]` are the successors of `u`.
pub(super) struct Digraph {
    starts: Vec<u32>,
    edges: Vec<u32>,
}

impl Digraph {
    /// A graph of `n` nodes from its edges, each of which counts once.
    pub fn new(n: usize, pairs: &[(u32, u32)]) -> Digraph {
        let mut starts = vec![0u32; n + 1];
        for &(u, _) in pairs {
            starts[u as usize + 1] += 1;
        }
        for i in 0..n {
            starts[i + 1] += starts[i];
        }
        let mut fill = starts.clone();
        let mut edges = vec![0u32; pairs.len()];
        for &(u, v) in pairs {
            edges[fill[u as usize] as usize] = v;
            fill[u as usize] += 1;
        }
        let mut kept = 0;
        for u in 0..n {
            let (from, to) = (starts[u] as usize, starts[u + 1] as usize);
            edges[from..to].sort_unstable();
            starts[u] = kept as u32;
            for at in from..to {
                if at == from || edges[at] != edges[kept - 1] {
                    edges[kept] = edges[at];
                    kept += 1;
                }
            }
        }
        starts[n] = kept as u32;
        edges.truncate(kept);
        Digraph { starts, edges }
    }

    /// The ends of all edges.
    pub fn ends(&self) -> &[u32] {
        &self.edges
    }

    /// Successors of a node.
    pub fn successors(&self, u: u32) -> &[u32] {
        &self.edges[self.starts[u as usize] as usize..self.starts[u as usize + 1] as usize]
    }

    /// Number of nodes.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The components, each before every component it has an edge to.
    pub fn components(&self) -> Vec<Vec<u32>> {
        const UNSEEN: u32 = u32::MAX;
        let n = self.len();
        let (mut index, mut low) = (vec![UNSEEN; n], vec![0u32; n]);
        let mut open = vec![false; n];
        let (mut stack, mut work): (Vec<u32>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        let mut out = Vec::new();
        let mut next = 0;
        for root in 0..n as u32 {
            if index[root as usize] != UNSEEN {
                continue;
            }
            work.push((root, 0));
            while let Some(&mut (u, ref mut at)) = work.last_mut() {
                let i = u as usize;
                if *at == 0 && index[i] == UNSEEN {
                    (index[i], low[i], open[i]) = (next, next, true);
                    next += 1;
                    stack.push(u);
                }
                if let Some(&v) = self.successors(u).get(*at as usize) {
                    *at += 1;
                    if index[v as usize] == UNSEEN {
                        work.push((v, 0));
                    } else if open[v as usize] {
                        low[i] = low[i].min(index[v as usize]);
                    }
                    continue;
                }
                work.pop();
                if let Some(&(parent, _)) = work.last() {
                    low[parent as usize] = low[parent as usize].min(low[i]);
                }
                if low[i] == index[i] {
                    let mut component = Vec::new();
                    while let Some(v) = stack.pop() {
                        open[v as usize] = false;
                        component.push(v);
                        if v == u {
                            break;
                        }
                    }
                    component.sort_unstable();
                    out.push(component);
                }
            }
        }
        out.reverse();
        out
    }
}
