#include "step/open_model.h"

namespace fettle {

OpenModel open_model(Devices& devices, const Request& request, Purpose purpose, const Variant& variant) {
  Run run = request.resolve(target_of(devices), purpose, variant);
  run.remarks.print();
  TrainState state = load_state(devices, run, request.repository(), false);
  return {std::move(run), std::move(state)};
}

}  // namespace fettle
