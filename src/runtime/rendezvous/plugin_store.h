// Lets a PJRT plugin use the store of the run. The plugin's clients find each other through it. Only for client.cpp.
#pragma once

struct PJRT_Client_Create_Args;

namespace fettle {

class Rendezvous;

// Sets the callbacks that read and write the store. `run` must outlive the client, whose threads call them.
void offer_store(Rendezvous& run, PJRT_Client_Create_Args& args);

}  // namespace fettle
