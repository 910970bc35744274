#include "graph/composite.h"

#include "base/error.h"
#include "graph/block.h"

namespace fettle {
namespace {

// Builds the body in a separate block, with new inputs, and returns the shapes of the results. Throws InternalError if
// the body uses a tensor of another block, because it may use only its inputs and tensors that it makes itself.
std::vector<Shape> shapes_of_body(const std::vector<Tensor>& inputs, const CompositeBody& body) {
  Block alone;
  BuildScope scope(alone);
  std::vector<Tensor> parameters;
  for (const Tensor& input : inputs) parameters.push_back(alone.parameter(input.shape()));
  std::vector<Shape> shapes;
  for (const Tensor& result : body(parameters)) shapes.push_back(result.shape());
  return shapes;
}

}  // namespace

std::vector<Tensor> composite(const std::string& name, const NamedAttributes& attributes,
                              const std::vector<Tensor>& inputs, const std::vector<Partition>& partitions,
                              const CompositeBody& body) {
  internal_check(partitions.empty() || partitions.size() == inputs.size(),
                 "[composite_c1] {} has {} inputs and {} partitions (at {})", name, inputs.size(), partitions.size(),
                 PathScope::path());
  const Lowering& lowering = Block::current().lowering();
  if (!lowering.choose) return body(inputs);
  CompositeSite site{name, attributes, {}, partitions, shapes_of_body(inputs, body), lowering.mesh};
  for (const Tensor& input : inputs) site.inputs.push_back(input.shape());
  site.partitions.resize(inputs.size());
  const std::optional<Kernel> kernel = lowering.choose(site);
  if (!kernel) return body(inputs);
  std::vector<Tensor> results = (*kernel)(inputs);
  internal_check(results.size() == site.results.size(),
                 "[composite_c2] the kernel of {} gave {} results, wanted {} (at {})", name, results.size(),
                 site.results.size(), PathScope::path());
  for (size_t i = 0; i < results.size(); ++i)
    internal_check(results[i].shape() == site.results[i],
                   "[composite_c2] result {} of the kernel of {} is {}, wanted {} (at {})", i, name,
                   results[i].shape().to_string(), site.results[i].to_string(), PathScope::path());
  return results;
}

}  // namespace fettle
