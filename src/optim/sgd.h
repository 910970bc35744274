// Defines stochastic gradient descent with momentum, like torch.optim.SGD.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// optim_args: momentum, dampening, nesterov. State "momentum" when momentum is above 0. Weight decay is added to the
// gradient (not decoupled).
UpdateRule sgd_rule();

}  // namespace fettle
