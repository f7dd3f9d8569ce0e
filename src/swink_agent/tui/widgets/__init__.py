"""The widgets of the full-screen UI, one in each file; importing this loads none of them."""
