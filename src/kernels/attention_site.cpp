#include "kernels/attention_site.h"

#include <algorithm>

namespace fettle {
namespace {

Partition with_rank(Partition split, size_t rank) {
  split.dims.resize(rank);
  return split;
}

}  // namespace

std::optional<AttentionSite> read_attention(const CompositeSite& site) {
  AttentionSite out;
  out.q = site.inputs[0];
  out.k = site.inputs[1];
  if (out.k.dtype != out.q.dtype || site.inputs[2] != out.k || out.k.dims[1] != out.q.dims[1]) return std::nullopt;
  out.split_q = with_rank(site.partitions[0], 4);
  out.split_k = with_rank(site.partitions[1], 4);
  out.split_segments = with_rank(site.partitions[3], 2);
  const auto& q = out.split_q.dims;
  if (!q[1].empty() || !q[3].empty() || out.split_k != out.split_q || with_rank(site.partitions[2], 4) != out.split_q ||
      out.split_segments.dims != std::vector{q[0], q[1]})
    return std::nullopt;
  out.split_sums.dims = {q[0], q[2], q[1]};
  out.q_shard = shard_of(out.q, out.split_q, site.mesh);
  out.k_shard = shard_of(out.k, out.split_k, site.mesh);
  if (out.q_shard.dims[2] % out.k_shard.dims[2] != 0) return std::nullopt;
  out.devices = out.q.elements() / out.q_shard.elements();
  out.scale = std::get<double>(site.attributes.at("scale"));
  out.softcap = std::get<double>(site.attributes.at("softcap"));
  out.causal = std::get<bool>(site.attributes.at("causal"));
  out.window = std::get<int64_t>(site.attributes.at("window"));
  if (out.window != 0 && !out.causal) return std::nullopt;
  const auto& slopes = std::get<std::vector<float>>(site.attributes.at("slopes"));
  out.slopes.assign(slopes.begin(), slopes.end());
  return out;
}

}  // namespace fettle
